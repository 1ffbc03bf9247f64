package guest

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

// A small assembler. Tests assemble modules byte by byte, so that each invalid
// module is invalid in exactly one place.

func uleb(value uint64) []byte { return binary.AppendUvarint(nil, value) }

func sleb(value int64) (out []byte) {
	for {
		b := byte(value & 0x7f)
		value >>= 7
		if value == 0 && b&0x40 == 0 || value == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

func cat(parts ...[]byte) []byte { return slices.Concat(parts...) }

func vec(items ...[]byte) []byte { return cat(uleb(uint64(len(items))), cat(items...)) }

func text(s string) []byte { return cat(uleb(uint64(len(s))), []byte(s)) }

func asmSection(id byte, payload []byte) []byte {
	return cat([]byte{id}, uleb(uint64(len(payload))), payload)
}

func asmModule(sections ...[]byte) []byte {
	return cat(wasm.Magic, wasm.Version, cat(sections...))
}

func asmType(s signature) []byte {
	return cat([]byte{typeFunction}, text(s.Params), text(s.Results))
}

// asmBody returns a function body that consists of groups of locals, the code
// and an end.
func asmBody(locals []byte, code ...[]byte) []byte {
	if locals == nil {
		locals = []byte{0}
	}
	body := cat(locals, cat(code...), []byte{opEnd})
	return cat(uleb(uint64(len(body))), body)
}

// Instructions that only the tests generate.
const (
	opI64Load    = 0x29
	opI64Store   = 0x37
	opI32Mul     = 0x6c
	opI32WrapI64 = 0xa7
	opI64Extend  = opI64ExtendU
)

func op(code byte, operands ...[]byte) []byte { return cat([]byte{code}, cat(operands...)) }

func i32c(v int32) []byte   { return op(opI32Const, sleb(int64(v))) }
func i64c(v int64) []byte   { return op(opI64Const, sleb(v)) }
func get(i uint64) []byte   { return op(opLocalGet, uleb(i)) }
func call(i uint64) []byte  { return op(opCall, uleb(i)) }
func aligned(a byte) []byte { return []byte{a, 0} } // alignment and offset of a memory access

func spanc(address, length uint32) []byte { return i64c(int64(abi.PackSpan(address, length))) }

// Addresses in the memory of the test guest.
const (
	manifestAt = 64
	statesAt   = 8 << 10 // has an u64 for each of 512 handles
	logTextAt  = 4 << 10
	scratchAt  = 5 << 10
	bufferAt   = 16 << 10
)

const testManifest = `{"abi":1,"name":"test","version":"1.0.0","entityTypes":[{"name":"test","kind":"event-sourced","encoding":"bytes"}]}`

// imported is a function that a test guest imports.
type imported struct{ module, name string }

// testGuest is a complete guest. The state of an entity is one u64: the sum of
// the lengths of the inputs of apply and handle. The fields replace parts of
// the guest.
type testGuest struct {
	imports  []imported
	wanted   []signature
	bodies   map[string][]byte // replacement code by export, without the final end
	locals   map[string][]byte
	omit     string // an export to leave out
	rename   map[string]string
	types    map[string]signature
	memory   []byte   // encoded bounds; default 24 pages and no maximum
	tables   [][]byte // encoded element type and bounds of each table
	globals  [][]byte
	exports  [][]byte // additional exports
	manifest string
	start    []byte
	data     [][]byte
	custom   [][]byte // whole sections, at the end of the module
	helpers  []helper // additional functions, after the contract's
}

type helper struct {
	signature
	locals, code []byte
}

// stateAddress computes the address of the state of the handle in local 0.
func stateAddress() []byte {
	return cat(get(0), op(opI32WrapI64), i32c(8), op(opI32Mul), i32c(statesAt), op(opI32Add))
}

// addLength adds the length in local 1 to the state of the handle in local 0.
func addLength() []byte {
	return cat(stateAddress(), stateAddress(), op(opI64Load, aligned(3)),
		get(1), op(opI64Extend), op(opI64Add), op(opI64Store, aligned(3)))
}

// stateSpan computes the span of the state of the handle in local 0.
func stateSpan() []byte {
	return cat(stateAddress(), op(opI64Extend), i64c(32), op(0x86), i64c(8), op(opI64Add))
}

func (t *testGuest) code(export string) []byte {
	if body, ok := t.bodies[export]; ok {
		return body
	}
	switch export {
	case abi.ExportABI:
		return i32c(1)
	case abi.ExportDescribe:
		return spanc(manifestAt, uint32(len(t.text())))
	case abi.ExportBuffer:
		return i32c(bufferAt)
	case abi.ExportLoad:
		return cat(get(1), op(opI32WrapI64), i32c(8), op(opI32Mul), i32c(statesAt), op(opI32Add),
			i64c(0), op(opI64Store, aligned(3)), i32c(0))
	case abi.ExportApply:
		return cat(addLength(), i32c(0))
	case abi.ExportHandle:
		return cat(addLength(), stateSpan())
	case abi.ExportQuery, abi.ExportSnapshot:
		return stateSpan()
	}
	return nil
}

func (t *testGuest) text() string {
	if t.manifest != "" {
		return t.manifest
	}
	return testManifest
}

// contractIndex returns the function index of an export. The functions of
// contract follow the imports, in order.
func (t *testGuest) contractIndex(export string) uint64 {
	for i, required := range contract {
		if required.Name == export {
			return uint64(len(t.imports) + i)
		}
	}
	panic("no such export: " + export)
}

// helperIndex returns the function index of a helper.
func (t *testGuest) helperIndex(i int) uint64 {
	return uint64(len(t.imports) + len(contract) + i)
}

func (t *testGuest) build() []byte {
	var types, imports, functions, exports, bodies [][]byte
	typeOf := func(s signature) []byte {
		types = append(types, asmType(s))
		return uleb(uint64(len(types) - 1))
	}
	for i, imp := range t.imports {
		imports = append(imports, cat(text(imp.module), text(imp.name), []byte{kindFunction}, typeOf(t.wanted[i])))
	}
	exports = append(exports, cat(text(abi.ExportMemory), []byte{kindMemory, 0}))
	for _, required := range contract {
		s := required.Signature
		if other, ok := t.types[required.Name]; ok {
			s = other
		}
		functions = append(functions, typeOf(s))
		bodies = append(bodies, asmBody(t.locals[required.Name], t.code(required.Name)))
		name := required.Name
		if other, ok := t.rename[name]; ok {
			name = other
		}
		if required.Name != t.omit {
			exports = append(exports, cat(text(name), []byte{kindFunction}, uleb(t.contractIndex(required.Name))))
		}
	}
	for _, h := range t.helpers {
		functions = append(functions, typeOf(h.signature))
		bodies = append(bodies, asmBody(h.locals, h.code))
	}
	memory := t.memory
	if memory == nil {
		memory = cat([]byte{0}, uleb(24))
	}
	data := append([][]byte{cat([]byte{0}, i32c(manifestAt), []byte{opEnd}, text(t.text()))}, t.data...)
	sections := [][]byte{asmSection(sectionType, vec(types...))}
	optional := func(id byte, items [][]byte) {
		if len(items) > 0 {
			sections = append(sections, asmSection(id, vec(items...)))
		}
	}
	optional(sectionImport, imports)
	optional(sectionFunction, functions)
	optional(sectionTable, t.tables)
	sections = append(sections, asmSection(sectionMemory, vec(memory)))
	optional(sectionGlobal, t.globals)
	optional(sectionExport, append(exports, t.exports...))
	if t.start != nil {
		sections = append(sections, asmSection(sectionStart, t.start))
	}
	optional(sectionCode, bodies)
	optional(sectionData, data)
	sections = append(sections, t.custom...)
	return asmModule(sections...)
}

// importing adds an import of an offered function and returns the guest.
func (t *testGuest) importing(module, name string) *testGuest {
	s, ok := importable(module, name)
	if !ok {
		panic("not on the list: " + name)
	}
	t.imports = append(t.imports, imported{module: module, name: name})
	t.wanted = append(t.wanted, s)
	return t
}

// cursorAt returns a cursor over a module, from a position on.
func cursorAt(code []byte, at int) *cursor {
	c := wasm.NewCursor(code)
	c.Pos = at
	return c
}

// parse admits a module that need not be a guest.
func parse(code []byte, limits abi.Limits) (*wasm.Metered, error) {
	return wasm.AdmitMetered(code, wasm.Rules{Limits: limits, Importable: importable})
}

// sectionOf returns the payload of a section of a well-formed module.
func sectionOf(t testing.TB, code []byte, id byte) []byte {
	t.Helper()
	c := cursorAt(code, 8)
	for c.OK() && c.Remaining() > 0 {
		got := c.Byte("an id")
		start := c.Skip(c.U32("a size"), "a section")
		if got == id {
			return code[start:c.Pos]
		}
	}
	t.Fatalf("no section %d", id)
	return nil
}
