package wasm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
)

// silent is a Reader that does nothing.
type silent struct{}

func (silent) Begin(*Module, *Cursor, Function) {}
func (silent) Step(*Instruction, int)           {}
func (silent) End()                             {}

func vec(items ...[]byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(items))), slices.Concat(items...)...)
}

// functions returns a module with n functions () -> () that have the given
// number of locals.
func functions(n, locals int, code []byte) []byte {
	out := slices.Concat(Magic, Version)
	section := func(id byte, payload []byte) {
		out = append(binary.AppendUvarint(append(out, id), uint64(len(payload))), payload...)
	}
	body := slices.Concat(vec(append(binary.AppendUvarint(nil, uint64(locals)), TypeI64)), code, []byte{OpEnd})
	body = append(binary.AppendUvarint(nil, uint64(len(body))), body...)
	section(SectionType, vec([]byte{TypeFunction, 0, 0}))
	section(SectionFunction, append(binary.AppendUvarint(nil, uint64(n)), make([]byte, n)...))
	section(SectionMemory, vec([]byte{0, 1}))
	section(SectionCode, append(binary.AppendUvarint(nil, uint64(n)), bytes.Repeat(body, n)...))
	return out
}

// TestCompilationWorkIsBounded checks that a module that would take minutes to compile is
// rejected at the function that exceeds the bound, and that half of it is
// accepted.
func TestCompilationWorkIsBounded(t *testing.T) {
	one := []byte{OpI32Const, 1}
	nested := func(n int) []byte {
		return slices.Concat(bytes.Repeat(append(one, OpIf, BlockVoid), n), bytes.Repeat([]byte{OpEnd}, n))
	}
	beside := func(n int, op byte) []byte {
		front := []byte{}
		if op == OpIf {
			front = one
		}
		return bytes.Repeat(append(front, op, BlockVoid, OpEnd), n)
	}
	table := func(n int) []byte {
		return slices.Concat(one, []byte{OpBrTable}, binary.AppendUvarint(nil, uint64(n)), make([]byte, n+1))
	}
	for _, c := range []struct {
		name              string
		functions, locals int
		code              []byte
		where             string // place of the rejection; "" means accepted
	}{
		{"ifs in ifs", 10, 0, nested(9_900), ""},
		{"ifs in ifs in many functions", 200, 0, nested(9_900), "function body 10"},
		{"blocks in blocks in many functions", 200, 0, slices.Concat(bytes.Repeat([]byte{OpBlock, BlockVoid}, 9_900), bytes.Repeat([]byte{OpEnd}, 9_900)), "function body 10"},
		{"ifs beside each other in many functions", 200, 0, beside(12_000, OpIf), "function body 6"},
		{"loops beside each other", 1, 0, beside(3_100, OpLoop), ""},
		{"more loops beside each other", 1, 0, beside(3_200, OpLoop), "function body 0"},
		{"loops in many functions", 100, 0, beside(1_000, OpLoop), "function body 9"},
		{"locals that live", 11, 512, beside(3_600, OpIf), ""},
		{"locals that live in many functions", 250, 512, beside(3_600, OpIf), "function body 11"},
		{"a br_table of many labels", 1, 0, table(60_000), ""},
		{"br_tables of many labels", 250, 0, table(60_000), "function body 7"},
		{"many functions of a few branches", 32_768, 20, beside(20, OpIf), ""},
		{"many functions of a few loops", 32_768, 2, beside(15, OpLoop), ""},
	} {
		_, err := Admit(functions(c.functions, c.locals, c.code), Rules{Limits: abi.DefaultLimits()}, silent{})
		var refused *AdmissionError
		switch {
		case c.where == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.where == "":
		case !errors.As(err, &refused) || refused.Where != c.where || !strings.Contains(refused.Reason, "branches, loops and locals"):
			t.Errorf("%s: %v, want a refusal of %s", c.name, err, c.where)
		}
	}
}
