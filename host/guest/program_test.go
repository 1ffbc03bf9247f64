package guest

import (
	"math/rand/v2"

	"github.com/hostd/hostd/host/guest/wasm"
)

// program generates random modules of plain functions: every kind of block,
// big switches, loops that end, calls, an indirect call, bulk operations. Two
// programs with the same seed are equal, except that a counting program adds
// the weight of each instruction to global 0 before it runs. The test
// compares that sum with the fuel that metering charges.
type program struct {
	random   *rand.Rand
	counting bool

	bodies  [][]byte
	code    []byte
	labels  []label // innermost last
	locals  int     // i32 locals that statements use, after the counter
	budget  int     // statements left in this function
	results int
}

// label is a block that a branch may target: how many i32 values a branch to
// it carries, and whether it is a loop.
type label struct {
	values int
	loop   bool
}

const (
	programLocals   = 5
	programFuel     = 0 // global that sums the weights of the executed instructions
	programTurns    = 1 // global that bounds the iterations of all loops
	programFunction = "run"
	programTable    = 40 // number of elements
)

// i emits one instruction.
func (p *program) i(code []byte) {
	if p.counting {
		var one wasm.Instruction
		c := wasm.NewCursor(code)
		c.Next(&one)
		w := wasm.Weight(&one)
		if one.Op == opLoop {
			defer p.count(wasm.LoopWeight)
		}
		if w > 0 && one.Op != opElse && one.Op != opEnd {
			p.count(int64(w))
		}
	}
	p.code = append(p.code, code...)
}

func (p *program) count(w int64) {
	p.code = append(p.code, cat(op(opGlobalGet, uleb(programFuel)), i64c(w), op(opI64Add), op(opGlobalSet, uleb(programFuel)))...)
}

func (p *program) build(functions int) []byte {
	for f := range functions {
		p.bodies = append(p.bodies, p.function(f))
	}
	last := uint64(functions - 1)
	elements := make([][]byte, programTable)
	for i := range elements {
		elements[i] = uleb(0)
	}
	global := func(t byte, value []byte) []byte { return cat([]byte{t, 1}, value, []byte{opEnd}) }
	declared := make([][]byte, functions)
	for i := range declared {
		declared[i] = uleb(0)
	}
	return asmModule(
		asmSection(sectionType, vec(asmType(sig(i32, i32)), asmType(sig(i32, i32+i32)), asmType(sig("", i32+i32)))),
		asmSection(sectionFunction, vec(declared...)),
		asmSection(sectionTable, vec(tableOf(memoryBounds(programTable, 2*programTable)))),
		asmSection(sectionMemory, vec(memoryBounds(1, 60))),
		asmSection(sectionGlobal, vec(global(typeI64, i64c(0)), global(typeI32, i32c(2000)))),
		asmSection(sectionExport, vec(cat(text(programFunction), []byte{kindFunction}, uleb(last)), cat(text("spent"), []byte{kindGlobal}, uleb(programFuel)))),
		asmSection(sectionElement, vec(cat([]byte{0}, i32c(0), []byte{opEnd}, vec(elements...)))),
		asmSection(sectionDataCount, uleb(1)),
		asmSection(sectionCode, vec(p.bodies...)),
		asmSection(sectionData, vec(cat([]byte{1}, text("some bytes to copy")))),
	)
}

// function generates a function (i32) -> i32. It may call the functions before
// it.
func (p *program) function(index int) []byte {
	p.code, p.budget = nil, 4+p.random.IntN(60)
	p.locals = programLocals
	p.labels = []label{{values: 1}}
	p.results = index
	for p.budget > 0 {
		p.statement()
	}
	p.i(get(uint64(p.random.IntN(programLocals))))
	return asmBody(vec(cat(uleb(programLocals-1), []byte{typeI32})), p.code)
}

func (p *program) local() uint64 { return uint64(p.random.IntN(programLocals)) }

// expression pushes an i32.
func (p *program) expression() {
	switch p.random.IntN(6) {
	case 0:
		p.i(i32c(int32(p.random.Uint32()) >> p.random.IntN(32)))
	case 1, 2:
		p.i(get(p.local()))
	case 3:
		p.expression0()
		p.expression0()
		p.i(op([]byte{opI32Add, opI32Sub, opI32Mul, 0x71, opI32Or, 0x73}[p.random.IntN(6)]))
	case 4:
		p.expression0()
		p.i(cat(i32c(0xfff)))
		p.i(op(0x71))
		p.i(op(opI32Load, aligned(2)))
	case 5:
		p.expression0()
		p.i(op(opI32Eqz))
	}
}

func (p *program) expression0() {
	if p.random.IntN(2) == 0 {
		p.i(get(p.local()))
	} else {
		p.i(i32c(int32(p.random.IntN(100))))
	}
}

func (p *program) set() { p.i(op(opLocalSet, uleb(p.local()))) }

func (p *program) statement() {
	p.budget--
	deep := len(p.labels) > 8
	switch kind := p.random.IntN(16); {
	case kind < 4 || deep && kind < 9:
		p.expression()
		p.set()
	case kind == 4:
		p.loop()
	case kind == 5:
		p.block()
	case kind == 6, kind == 7:
		p.ifElse()
	case kind == 8:
		p.bigSwitch()
	case kind == 9:
		p.branch()
	case kind == 10:
		p.expression0()
		p.i(i32c(0xffc))
		p.i(op(0x71))
		p.expression()
		p.i(op(0x36, aligned(2)))
	case kind == 11:
		p.call()
	case kind == 12:
		p.bulk()
	case kind == 13:
		p.valueBlock()
	default:
		p.expression()
		p.i(op(opDrop))
	}
}

func (p *program) some(most int) {
	for range p.random.IntN(most) {
		if p.budget > 0 {
			p.statement()
		}
	}
}

func (p *program) open(code []byte, l label) {
	p.i(code)
	p.labels = append(p.labels, l)
}

func (p *program) close() {
	p.i([]byte{opEnd})
	p.labels = p.labels[:len(p.labels)-1]
}

func (p *program) block() {
	p.open(op(opBlock, []byte{blockVoid}), label{})
	p.some(6)
	p.close()
}

func (p *program) ifElse() {
	p.expression()
	p.open(op(opIf, []byte{blockVoid}), label{})
	p.some(5)
	if p.random.IntN(2) == 0 {
		p.i([]byte{opElse})
		p.some(5)
	}
	p.close()
}

// turn pushes 1 while there are iterations left.
func (p *program) turn() {
	p.i(op(opGlobalGet, uleb(programTurns)))
	p.i(i32c(1))
	p.i(op(opI32Sub))
	p.i(op(opGlobalSet, uleb(programTurns)))
	p.i(op(opGlobalGet, uleb(programTurns)))
	p.i(i32c(0))
	p.i(op(0x4a)) // i32.gt_s
}

// loop generates a loop that runs at most while there are iterations left.
func (p *program) loop() {
	if p.random.IntN(4) == 0 { // generate a loop that carries a value
		p.expression()
		p.open(op(opLoop, sleb(0)), label{values: 1, loop: true})
		p.set()
		p.some(5)
		p.expression()
		p.turn()
		p.i(op(opBrIf, uleb(0)))
		p.close()
		p.set()
		return
	}
	p.open(op(opLoop, []byte{blockVoid}), label{loop: true})
	p.some(7)
	p.turn()
	p.expression()
	p.i(op(0x71))
	p.i(op(opBrIf, uleb(0)))
	p.close()
}

func (p *program) valueBlock() {
	if p.random.IntN(2) == 0 {
		p.open(op(opBlock, []byte{typeI32}), label{values: 1})
		p.some(4)
		p.expression()
		p.close()
	} else {
		p.open(op(opBlock, sleb(2)), label{values: 2})
		p.some(4)
		p.expression()
		p.expression()
		p.close()
		p.i(op(opI32Add))
	}
	p.set()
}

// branch generates a branch out of a block, or back to a loop if there are
// iterations left.
func (p *program) branch() {
	at := p.random.IntN(len(p.labels))
	target := p.labels[len(p.labels)-1-at]
	for range target.values {
		p.expression()
	}
	if target.loop {
		p.turn()
	} else {
		p.expression()
	}
	switch {
	case p.random.IntN(4) == 0 && at == len(p.labels)-1:
		p.i(op(opIf, sleb(0))) // the if has the value as a parameter, and returns it
		p.i([]byte{opReturn})
		p.i([]byte{opEnd})
	default:
		p.i(op(opBrIf, uleb(uint64(at))))
	}
	for range target.values {
		p.i(op(opDrop))
	}
}

// bigSwitch generates a br_table over blocks, as compilers do for a switch. The
// cases may break, fall through, or branch to outer blocks.
func (p *program) bigSwitch() {
	cases := 2 + p.random.IntN(8)
	p.open(op(opBlock, []byte{blockVoid}), label{}) // a block that cases may break out of
	for range cases {
		p.open(op(opBlock, []byte{blockVoid}), label{})
	}
	p.some(3)
	p.expression()
	p.i(i32c(int32(cases)))
	p.i(op(0x70)) // rem_u
	targets := make([][]byte, cases)
	for i := range targets {
		targets[i] = uleb(uint64(i))
	}
	p.i(op(opBrTable, vec(targets...), uleb(uint64(cases))))
	for c := range cases {
		p.close()
		p.some(4)
		if p.random.IntN(2) == 0 {
			p.i(op(opBr, uleb(uint64(cases-1-c))))
		}
	}
	p.close()
}

// call generates a call of a function defined before, directly or through the
// table.
func (p *program) call() {
	if p.results == 0 {
		return
	}
	p.expression()
	if p.random.IntN(3) == 0 {
		p.i(i32c(int32(p.random.IntN(programTable))))
		p.i(op(opCallIndirect, uleb(0), uleb(0)))
	} else {
		p.i(call(uint64(p.random.IntN(p.results))))
	}
	p.set()
}

// bulk generates an operation that stays inside memory and table.
func (p *program) bulk() {
	small := func(most int) { p.i(i32c(int32(p.random.IntN(most)))) }
	misc := func(sub byte, operands ...byte) { p.i(cat([]byte{opMisc, sub}, operands)) }
	switch p.random.IntN(8) {
	case 0:
		small(1000)
		small(256)
		small(1000)
		misc(miscMemoryFill, 0)
	case 1:
		small(1000)
		small(1000)
		small(1000)
		misc(miscMemoryCopy, 0, 0)
	case 2:
		small(1000)
		small(5)
		small(10)
		misc(miscMemoryInit, 0, 0)
	case 3:
		small(programTable / 2)
		p.i(op(opRefFunc, uleb(0)))
		small(programTable / 2)
		misc(miscTableFill, 0)
	case 4:
		small(programTable / 2)
		small(programTable / 2)
		small(programTable / 2)
		misc(miscTableCopy, 0, 0)
	case 5:
		p.i(op(opRefFunc, uleb(0)))
		small(3)
		misc(miscTableGrow, 0)
		p.set()
	case 6:
		small(2)
		p.i(op(opMemoryGrow, []byte{0}))
		p.set()
	case 7:
		p.i(op(opMemorySize, []byte{0}))
		p.set()
	}
}
