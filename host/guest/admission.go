package guest

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

// AdmissionError reports why a module is rejected.
type AdmissionError = wasm.AdmissionError

// Description describes an admitted module.
type Description = wasm.Description

// Admit checks a module against the guest contract and the limits without
// compiling or running it. code is not kept. The error is an *AdmissionError.
func (e *Engine) Admit(code []byte) (*Description, error) {
	m, err := admit(code, e.limits)
	if err != nil {
		return nil, err
	}
	return m.Describe(), nil
}

// admit makes all checks that precede compilation.
func admit(code []byte, limits abi.Limits) (*wasm.Metered, error) {
	return wasm.AdmitMetered(code, wasm.Rules{Limits: limits, Exports: contract[:], Optional: optional[:], Importable: importable})
}
