package wasm

// Function is a function that a module defines.
type Function struct {
	Index     uint32 // index in the index space of functions, imports first
	Signature Signature
	Locals    int // declared locals, without parameters
	Code      Stretch
}

// Reader receives a module's functions, one after the other, while they are
// read and checked. It may reject the module through the cursor.
type Reader interface {
	// Begin is called before the instructions of f are read. c, from which they
	// will be read, is at the first instruction.
	Begin(m *Module, c *Cursor, f Function)
	// Step receives an instruction, which is valid only during the call. start is
	// its offset; the cursor is after it.
	Step(i *Instruction, start int)
	// End is called after the last instruction.
	End()
}

// readInstructions reads and checks a function's instructions and passes them
// to r.
func (m *Module) readInstructions(c *Cursor, f Function, r Reader) {
	b := &bodyCheck{m: m, c: c, variables: len(f.Signature.Params) + f.Locals, open: append(m.spare[:0], OpBlock)}
	r.Begin(m, c, f)
	var i Instruction
	for c.OK() && len(b.open) > 0 {
		start := c.Pos
		if c.Next(&i); c.OK() {
			b.check(&i)
		}
		if c.OK() {
			r.Step(&i, start)
		}
	}
	if c.OK() && c.Remaining() > 0 {
		c.refuseDamaged("instructions after the end")
	}
	if c.OK() {
		b.end()
	}
	if c.OK() {
		r.End()
	}
	m.spare = b.open
}
