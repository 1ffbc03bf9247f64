package wasm

// A loop that is a few instructions long and calls nothing is written several
// times in a row, so that one look at the fuel serves several turns: the look
// is as much work as such a turn. All of them are charged first, and what the
// last of them did not get to is given back where the loop is left, so that
// the fuel is that of the turns.
const (
	unrolledBytes = 160 // of a loop's instructions when written again
	mostCopies    = 8
	// mostUnrolled bounds what a function grows by, as compiling takes more than
	// proportionally long.
	mostUnrolled = 4 << 10
)

// unroll decides on a loop that has ended: f is its frame.
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

// unrolledLoop writes a loop several times: i is its first instruction, which
// has been read from c.
//
//	block                      left by those that end the loop
//	  loop                     where fuel is settled
//	    loop                   every so many turns: look at the fuel, charge
//	      block                one turn: a branch to the loop ends it
//	        ...
//	        give back, br to the outermost
//	      end
//	      ...                  the last one branches to the loop itself
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

// untilEnd writes instructions up to the end of the loop that was opened last.
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

// giveBack takes off what was charged for turns that are not made.
func (b *bodyWriter) giveBack() {
	if b.refund > 0 {
		b.addPending(-b.refund)
	}
}
