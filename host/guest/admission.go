package guest

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

// AdmissionError says why a module is refused.
type AdmissionError = wasm.AdmissionError

// Description is what admission found out about a module.
type Description = wasm.Description

// Admit checks a module against the guest contract and the limits without
// compiling or running any of it. It does not keep code. The error is an
// *AdmissionError.
func (e *Engine) Admit(code []byte) (*Description, error) {
	m, err := admit(code, e.limits)
	if err != nil {
		return nil, err
	}
	return m.Describe(), nil
}

// admit is everything that is decided about a module before it is compiled.
func admit(code []byte, limits abi.Limits) (*wasm.Metered, error) {
	return wasm.AdmitMetered(code, wasm.Rules{Limits: limits, Exports: contract[:], Optional: optional[:], Importable: importable})
}
