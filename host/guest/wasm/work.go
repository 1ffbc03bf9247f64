package wasm

// The effort of compiling a function grows with more than its size: with the
// square of its branches, with loops times branches, and with branches times
// the locals that live across them. So a small function can need minutes to
// compile. The estimated effort of a module's functions is bounded before any
// is compiled.
//
// The weights are fitted to the time that the compiler needs, at about 10 ns
// for a unit. A module near the size limit from the Go compiler, with 14 MB and
// 8,158 functions, has 355 million units.
const (
	maxWork = 1_000_000_000 // maximum for all functions of a module

	workLoop     = 100 // for each loop and each branch
	workVariable = 40  // for each parameter or local and each branch
	workLabel    = 500 // for each label of a br_table
	sparseLabels = 6   // this many labels of a br_table count as one branch
)

// work counts the parts of a function that determine the effort of compiling
// it.
type work struct {
	branches int // number of branches, including blocks
	cycles   int // number of loops
	labels   int // labels of all br_tables
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

// of returns the work of a function with the given number of parameters and
// locals. It is below 2^34 for a body of 64 KiB.
func (w *work) of(variables int) int64 {
	branches := int64(w.branches + w.labels/sparseLabels)
	return branches*branches + branches*int64(workLoop*w.cycles+workVariable*variables) + workLabel*int64(w.labels)
}
