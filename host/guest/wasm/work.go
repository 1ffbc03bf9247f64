package wasm

// What compiling a function takes grows with more than its size: with the
// square of its branches, with its loops for each of them, and with the locals
// that live across them. What is written in a few instructions can so take
// minutes. The sum over a module's functions is bounded before any is
// compiled.
//
// The weights are fitted to the time that the compiler takes, at about 10 ns a
// unit of work, where a module of the Go compiler near the largest there may be, of
// 14 MB and 8,158 functions, has 355 million.
const (
	maxWork = 1_000_000_000 // of all functions of a module

	workLoop     = 100 // of a loop, for each branch
	workVariable = 40  // of a parameter or local, for each branch
	workLabel    = 500 // of a label of a br_table
	sparseLabels = 6   // so many labels of a br_table are as another branch
)

// work counts what compiling a function takes.
type work struct {
	branches int // and blocks
	cycles   int // loops
	labels   int // of all br_table
}

// add counts an instruction.
func (w *work) add(i *Instruction) {
	switch i.Op {
	case OpBlock, OpIf, OpElse, OpBrIf:
		w.branches++
	case OpLoop:
		w.branches++
		w.cycles++
	case OpBrTable:
		w.branches++
		w.labels += i.Count
	}
}

// of is the work of a function with so many parameters and locals. It is below
// 2^34 for a body of 64 KiB.
func (w *work) of(variables int) int64 {
	branches := int64(w.branches + w.labels/sparseLabels)
	return branches*branches + branches*int64(workLoop*w.cycles+workVariable*variables) + workLabel*int64(w.labels)
}
