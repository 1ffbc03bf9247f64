package wasm

import "fmt"

// Bounds of a function body.
const (
	maxNesting     = 10_000 // depth of nested blocks; the Go compiler nests one for each call in a function
	maxLoopNesting = 1_000  // depth of nested loops, because compile time grows with its square
)

// bodyCheck checks the instructions of a function: every index that rewriting
// changes, so that rewriting cannot make an invalid index valid, and the
// estimated work of compiling.
type bodyCheck struct {
	m         *Module
	c         *Cursor
	variables int    // number of parameters and locals
	open      []byte // opcodes that opened the open blocks, innermost last
	loops     int    // number of open loops
	work
}

func (b *bodyCheck) check(i *Instruction) {
	b.indices(i)
	b.work.add(i)
	switch i.Op {
	case OpBlock, OpLoop, OpIf:
		b.begin(i.Op)
	case OpElse:
		if b.open[len(b.open)-1] != OpIf {
			b.c.refuseDamaged("an else without an if")
		}
	case OpEnd:
		last := len(b.open) - 1
		if b.open[last] == OpLoop {
			b.loops--
		}
		b.open = b.open[:last]
	case OpBr, OpBrIf, OpBrTable:
		if int64(i.A) >= int64(len(b.open)) {
			b.c.refuseDamaged(fmt.Sprintf("no block %d to branch to", i.A))
		}
	}
	if b.c.OK() {
		b.m.use(b.c, i)
	}
}

func (b *bodyCheck) begin(op byte) {
	if b.open = append(b.open, op); len(b.open) > maxNesting {
		b.c.Refuse("blocks nest deeper than %d; split the function", maxNesting)
	}
	if op != OpLoop {
		return
	}
	if b.loops++; b.loops > maxLoopNesting {
		b.c.Refuse("loops nest deeper than %d; split the function", maxLoopNesting)
	}
}

// indices rejects an index that does not exist in the uploaded module.
func (b *bodyCheck) indices(i *Instruction) {
	m := b.m
	bound := -1
	what := ""
	switch op := i.Op; {
	case op == OpBlock || op == OpLoop || op == OpIf:
		if i.Value >= 0 && i.Value >= int64(len(m.Types)) || i.Value < 0 && i.Value != BlockVoidType && valueTypeName(byte(i.Value&0x7f)) == "" {
			b.c.refuseDamaged("unknown block type")
		}
		return
	case op == OpCall || op == OpRefFunc:
		bound, what = m.spaceSize(KindFunction), "function"
	case op == OpCallIndirect:
		bound, what = len(m.Types), "type"
	case op >= OpLocalGet && op <= OpLocalTee:
		bound, what = b.variables, "local"
	case op == OpGlobalGet || op == OpGlobalSet:
		bound, what = m.Globals, "global"
	default:
		return
	}
	if int64(i.A) >= int64(bound) {
		b.c.refuseDamaged(fmt.Sprintf("no %s %d", what, i.A))
	}
}

// end adds the function to the work of compiling the module.
func (b *bodyCheck) end() {
	if b.m.work += b.work.of(b.variables); b.m.work > maxWork {
		b.c.Refuse("one function, or all functions up to here, have too many blocks, branches, loops and locals to compile; split the largest functions")
	}
}
