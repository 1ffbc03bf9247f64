package wasm

import (
	"github.com/hostd/hostd/abi"
)

// ExportedFunction is a function that a module must or may export.
type ExportedFunction struct {
	Name      string
	Signature Signature
}

// checkExports checks that the module exports its memory and the required
// functions, and that these and the optional ones have the right signatures.
func checkExports(m *Module, required, optional []ExportedFunction) *AdmissionError {
	byName := make(map[string]Export, len(m.Exports))
	for _, exp := range m.Exports {
		byName[exp.Name] = exp
	}
	memory, ok := byName[abi.ExportMemory]
	if !ok {
		return Refuse("exports", "the memory is not exported; export it as %q", abi.ExportMemory)
	}
	if memory.Kind != KindMemory {
		return Refuse("export "+abi.ExportMemory, "must be the memory, but is a %s", kindNames[memory.Kind])
	}
	for _, want := range required {
		exp, ok := byName[want.Name]
		if !ok {
			return missingExport(want.Name, want.Signature, byName)
		}
		if fault := m.checkFunction(exp, want.Signature); fault != nil {
			return fault
		}
	}
	for _, want := range optional {
		if exp, ok := byName[want.Name]; ok {
			if fault := m.checkFunction(exp, want.Signature); fault != nil {
				return fault
			}
		}
	}
	if exp, ok := byName[abi.ExportInitialize]; ok {
		return m.checkFunction(exp, Signature{})
	}
	return nil
}

func missingExport(name string, want Signature, byName map[string]Export) *AdmissionError {
	hint := "export it with signature " + want.String()
	if _, command := byName["_start"]; command {
		hint = "this is a program with a main function; build a library instead (Go: -buildmode=c-shared, C: -mexec-model=reactor), and " + hint
	}
	return Refuse("exports", "the function %s is missing; %s", name, hint)
}

func (m *Module) checkFunction(exp Export, want Signature) *AdmissionError {
	if exp.Kind != KindFunction {
		return Refuse("export "+exp.Name, "must be a function, but is a %s", kindNames[exp.Kind])
	}
	if got, _ := m.FunctionType(exp.Index); got != want {
		return Refuse("export "+exp.Name, "has signature %v, must be %v", got, want)
	}
	return nil
}
