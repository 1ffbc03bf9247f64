package guest

import (
	"encoding/binary"
	"slices"

	"github.com/hostd/hostd/abi"
)

// function is one function of a module: its export name, if any, its type, and
// its code without the end opcode.
type function struct {
	export, params, results string
	code                    []byte
}

func uleb(v uint64) []byte { return binary.AppendUvarint(nil, v) }

func sleb(v int64) (out []byte) {
	for {
		b := byte(v & 0x7f)
		v >>= 7
		if v == 0 && b&0x40 == 0 || v == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

func i32Const(v int32) []byte { return append([]byte{0x41}, sleb(int64(v))...) }
func i64Const(v int64) []byte { return append([]byte{0x42}, sleb(v)...) }

func name(s string) []byte { return append(uleb(uint64(len(s))), s...) }

func vector(items ...[]byte) []byte {
	return append(uleb(uint64(len(items))), slices.Concat(items...)...)
}

func section(id byte, content []byte) []byte {
	return slices.Concat([]byte{id}, uleb(uint64(len(content))), content)
}

// data encodes an active data segment.
func data(at int32, content []byte) []byte {
	return slices.Concat([]byte{0}, i32Const(at), []byte{0x0b}, name(string(content)))
}

// assemble encodes the sections of a module. Each function has a type of its
// own and one i32 local.
func (m Module) assemble(functions []function, segments [][]byte) []byte {
	const kindFunction, kindMemory = 0, 2
	var types, imports, declared, exports, bodies [][]byte
	if m.Import != nil {
		types = append(types, slices.Concat([]byte{0x60}, name(""), name("")))
		imports = append(imports, slices.Concat(name(m.Import.Module), name(m.Import.Name), []byte{kindFunction, 0}))
	}
	exports = append(exports, slices.Concat(name(abi.ExportMemory), []byte{kindMemory, 0}))
	for i, f := range functions {
		declared = append(declared, uleb(uint64(len(types))))
		types = append(types, slices.Concat([]byte{0x60}, name(f.params), name(f.results)))
		body := slices.Concat([]byte{1, 1, 0x7f}, f.code, []byte{0x0b})
		bodies = append(bodies, slices.Concat(uleb(uint64(len(body))), body))
		if f.export != "" && f.export != m.Omit {
			exports = append(exports, slices.Concat(name(f.export), []byte{kindFunction}, uleb(uint64(len(imports)+i))))
		}
	}
	pages := m.MemoryPages
	if pages == 0 {
		pages = MemoryBytes / pageBytes
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	out = append(out, section(1, vector(types...))...)
	if len(imports) > 0 {
		out = append(out, section(2, vector(imports...))...)
	}
	out = append(out, section(3, vector(declared...))...)
	out = append(out, section(5, vector(append([]byte{0}, uleb(uint64(pages))...)))...)
	out = append(out, section(7, vector(exports...))...)
	if m.Start {
		out = append(out, section(8, uleb(uint64(len(imports)+len(functions)-1)))...)
	}
	out = append(out, section(10, vector(bodies...))...)
	return append(out, section(11, vector(segments...))...)
}
