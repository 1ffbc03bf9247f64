package wasm

// Function is a function that a module defines.
type Function struct {
	Index     uint32 // among all, imports first
	Signature Signature
	Locals    int // that it declares, beyond its parameters
	Code      Stretch
}

// Reader is told of a module's functions, one after the other, while they are
// read and checked. It may refuse the module at the cursor.
type Reader interface {
	// Begin comes before the instructions of f; c stands at the first of them
	// and is the one that they are read from.
	Begin(m *Module, c *Cursor, f Function)
	// Step is one of its instructions, which is valid only during the call. It
	// began at start, and the cursor stands behind it.
	Step(i *Instruction, start int)
	// End comes after the last.
	End()
}

// readInstructions reads a function's instructions and tells r of them.
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
	if c.OK() && c.Left() > 0 {
		c.damaged("instructions behind the end")
	}
	if c.OK() {
		b.end()
	}
	if c.OK() {
		r.End()
	}
	m.spare = b.open
}
