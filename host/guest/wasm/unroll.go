package wasm

// A loop of a few instructions without calls is unrolled, so that one fuel
// check serves several iterations; a check is as much work as such an
// iteration. All copies are charged together in advance. When the loop is left
// early, the fuel of the iterations that were not run is given back, so that
// the total charge is exact.
const (
	unrolledBytes = 160 // maximum bytes of the copies of one loop
	mostCopies    = 8
	// mostUnrolled bounds the bytes by which unrolling lengthens a function,
	// because compile time grows more than linearly.
	mostUnrolled = 4 << 10
)

// unroll decides whether a loop that has ended is unrolled; f is its frame.
func (p *planner) unroll(f *frame) {
	header := &p.plan.points[f.header]
	size := p.where.Pos - f.body
	copies := min(mostCopies, unrolledBytes/max(1, size))
	if f.stiff || copies < 2 || !f.targeted || p.plan.calls[header.loop] || p.plan.unrolled+copies*size > mostUnrolled {
		return
	}
	p.plan.unrolled += copies * size
	header.copies = copies
}

// unrolledLoop writes a loop several times. i is its first instruction, which
// was read from c.
//
//	block                      exits of the loop branch to its end
//	  loop                     settle pending fuel
//	    loop                   every few iterations: check the fuel, charge
//	      block                one iteration: a branch to the loop header ends it
//	        ...
//	        give back, br to the outermost block
//	      end
//	      ...                  the last copy branches to the loop itself
//	    end
//	  end
//	end
func (b *bodyWriter) unrolledLoop(c *Cursor, i *Instruction) {
	p := b.plan.points[b.next]
	b.next++
	begin := func(op byte, blockType int64) {
		b.emit(op)
		b.bytes = AppendSigned(b.bytes, blockType)
		b.height++
	}
	begin(OpBlock, i.Value)
	exit := b.height - 1
	begin(OpLoop, i.Value)
	b.settleIfMuch()
	begin(OpLoop, i.Value)
	header := b.height - 1
	b.much()
	b.emit(OpIf, BlockVoid)
	b.index(OpBr, 2)
	b.emit(OpEnd)
	b.addPending(int64(p.cost) * int64(p.copies))
	start := c.Pos
	for left := p.copies - 1; left >= 0; left-- {
		c.Pos = start
		label := header
		if left > 0 {
			begin(OpBlock, BlockVoidType)
			label = b.height - 1
		}
		b.open = append(b.open, openBlock{label: label})
		b.refund, b.refundBelow = int64(p.cost)*int64(left), len(b.open)-1
		b.untilEnd(c)
		if left > 0 {
			b.giveBack()
			b.index(OpBr, uint32(b.height-1-exit))
			b.emit(OpEnd)
			b.height--
		}
		b.refund = 0
	}
	for b.height > exit {
		b.emit(OpEnd)
		b.height--
	}
}

// untilEnd writes the instructions up to the end of the innermost open loop.
func (b *bodyWriter) untilEnd(c *Cursor) {
	depth := len(b.open)
	var i Instruction
	for {
		c.Next(&i)
		if i.Op == OpEnd && len(b.open) == depth {
			b.open = b.open[:depth-1]
			return
		}
		b.instruction(c, &i)
	}
}

// giveBack refunds the charge for iterations that are not run.
func (b *bodyWriter) giveBack() {
	if b.refund > 0 {
		b.addPending(-b.refund)
	}
}
