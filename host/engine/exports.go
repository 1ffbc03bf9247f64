package engine

import (
	"github.com/hostd/hostd/abi"
)

const (
	i32 = "\x7f"
	i64 = "\x7e"
)

// requiredExports are the functions of the guest contract, in the order in
// which a missing one is reported.
var requiredExports = [...]struct {
	name string
	signature
}{
	{abi.ExportABI, signature{"", i32}},
	{abi.ExportDescribe, signature{"", i64}},
	{abi.ExportBuffer, signature{i32, i32}},
	{abi.ExportLoad, signature{i32 + i64 + i32, i32}},
	{abi.ExportApply, signature{i64 + i32, i32}},
	{abi.ExportHandle, signature{i64 + i32, i64}},
	{abi.ExportQuery, signature{i64 + i32, i64}},
	{abi.ExportSnapshot, signature{i64, i64}},
	{abi.ExportDrop, signature{i64, ""}},
}

// checkExports checks that the module exports what the contract requires,
// with the contract's signatures.
func checkExports(m *parsedModule) *AdmissionError {
	byName := make(map[string]export, len(m.exports))
	for _, exp := range m.exports {
		byName[exp.name] = exp
	}
	memory, ok := byName[abi.ExportMemory]
	if !ok {
		return refuse("exports", "the memory is not exported; export it as %q", abi.ExportMemory)
	}
	if memory.kind != kindMemory {
		return refuse("export "+abi.ExportMemory, "must be the memory, is a %s", kindNames[memory.kind])
	}
	for _, required := range requiredExports {
		exp, ok := byName[required.name]
		if !ok {
			return missingExport(required.name, required.signature, byName)
		}
		if fault := m.checkFunction(exp, required.signature); fault != nil {
			return fault
		}
	}
	if exp, ok := byName[abi.ExportInitialize]; ok {
		return m.checkFunction(exp, signature{})
	}
	return nil
}

func missingExport(name string, want signature, byName map[string]export) *AdmissionError {
	hint := "export it with signature " + want.String()
	if _, command := byName["_start"]; command {
		hint = "this is a program with a main function; build a library instead (Go: -buildmode=c-shared, C: -mexec-model=reactor), and " + hint
	}
	return refuse("exports", "the function %s is missing; %s", name, hint)
}

func (m *parsedModule) checkFunction(exp export, want signature) *AdmissionError {
	if exp.kind != kindFunction {
		return refuse("export "+exp.name, "must be a function, is a %s", kindNames[exp.kind])
	}
	if got, _ := m.functionType(exp.index); got != want {
		return refuse("export "+exp.name, "has signature %v, must be %v", got, want)
	}
	return nil
}
