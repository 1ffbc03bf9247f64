package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// KindCut and KindCreate are the kinds of the records that CutRecord and
// CreateRecord return.
const (
	KindCut    byte = kindCut
	KindCreate byte = kindCreate
)

// Checkpoint appends to dst what a reader must know who starts here: the
// groups as the records appended so far left them.
func (c *Core) Checkpoint(dst []byte) []byte {
	dst = append(dst, checkpointVersion)
	dst = le.AppendUint64(dst, c.watermark)
	dst = le.AppendUint32(dst, uint32(len(c.order)))
	for _, g := range c.order {
		dst = appendImage(dst, &g.written)
	}
	return appendFormer(dst, c.former)
}

// CutDue says whether the log may be cut further, now. It may not while an
// applied membership is not written yet: a restart as of the new watermark
// would not apply the change again, so the log must hold its outcome before it
// holds the watermark.
func (c *Core) CutDue() bool {
	unwritten := func(g *group) bool { return g.confUnwritten }
	return c.cutDue && !slices.ContainsFunc(c.dirty, unwritten)
}

// CutRecord returns the payload of a record that moves the cuts of the groups
// up to what the state machine holds durably, nil if nothing moves. It is
// valid until the next call of a method that returns a payload. CutAppended
// follows, then a sync, then CutDone.
func (c *Core) CutRecord(watermark uint64, durable map[sharding.ShardID]uint64) []byte {
	if watermark < c.watermark {
		return nil
	}
	b := append(c.buf[:0], payloadVersion)
	b = le.AppendUint64(b, watermark)
	at := len(b)
	b = le.AppendUint32(b, 0)
	n := uint32(0)
	moved := watermark > c.watermark
	retain := c.retain()
	for _, g := range c.order {
		if !g.uncut && (retain == c.opts.RetainBytes || g.log.bytes <= retain) {
			continue
		}
		index := c.held(g, g.cutTarget(durable[g.shard], retain))
		// Behind all that is durable, a follower cuts no more until it applies
		// more; a leader may be waiting for its followers.
		g.uncut = durable[g.shard] < g.applied || g.leader && index < g.applied
		if index <= g.written.cut {
			continue
		}
		term, err := g.log.Term(index)
		if err != nil {
			continue
		}
		b = appendCut(b, cutImage{uint32(g.shard), g.replica, index, term})
		g.written.cut, g.written.cutTerm = index, term
		n++
		moved = true
	}
	c.buf = b
	c.cutDue = slices.ContainsFunc(c.order, func(g *group) bool { return g.uncut || g.install.index != 0 })
	if !moved {
		return nil
	}
	le.PutUint32(b[at:], n)
	c.watermark = watermark
	return b
}

// cutTarget is how far the log may be cut: nothing that is not durable in the
// state machine, nor, where others may ask for it, the last bytes.
func (g *group) cutTarget(durable uint64, retain int64) uint64 {
	index := min(durable, g.applied)
	if g.alone() {
		return index
	}
	keep := g.log.tailIndex(retain)
	// Raft may have lost a leadership that is still to be reported; then it
	// knows nothing of the others.
	if progress := g.node.Status().Progress; len(progress) > 0 || planted == 17 && g.leader {
		slowest := index
		for id, p := range progress {
			if id != g.replica {
				slowest = min(slowest, p.Match)
			}
		}
		keep = max(keep, slowest)
	}
	return min(index, keep)
}

// CutDone forgets the entries behind the cuts, after the record is durable,
// and returns the position before which the log is needed no more. tail is the
// log's.
func (c *Core) CutDone(tail wal.Position) (before wal.Position) {
	before = tail
	for _, g := range c.order {
		if g.written.cut > g.log.cut {
			g.log.compact(g.written.cut, g.written.cutTerm)
		}
		pos, ok := g.needed()
		if !ok {
			continue
		}
		if pos.Segment+c.opts.MaxPinnedSegments < tail.Segment && 2*g.log.bytes < int64(c.opts.MaxRecordBytes) {
			// An idle group holds old segments back: its entries move.
			g.rewrite = true
			c.touch(g)
		}
		if pos.Less(before) {
			before = pos
		}
	}
	return before
}
