package raftgroup

import (
	"encoding/binary"
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/raftlog"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// Checkpoint appends to dst what a reader must know who starts here: the
// groups as the records appended so far left them.
func (c *Core) Checkpoint(dst []byte) []byte {
	dst = wire.BeginCheckpoint(dst, c.retention.watermark, len(c.order))
	for _, g := range c.order {
		dst = wire.AppendImage(dst, &g.written)
	}
	return wire.EndCheckpoint(dst, c.former)
}

// retention is how far the logs of the groups are cut, and what is kept of them.
type retention struct {
	opts      *Options
	transfers *transfers
	watermark uint64 // the state machine's as of the last cut written
	due       bool   // something may be cut, now or when more is durable
	sizes     []int64
	buf       []byte
}

// mayCut says whether the log may be cut further, now. It may not while an
// applied membership is not written yet: a restart as of the new watermark
// would not apply the change again, so the log must hold its outcome before it
// holds the watermark.
func (r *retention) mayCut(dirty []*group) bool {
	unwritten := func(g *group) bool { return g.confUnwritten }
	return r.due && !slices.ContainsFunc(dirty, unwritten)
}

// record returns the payload of a record that moves the cuts of the groups
// up to what the state machine holds durably, nil if nothing moves. It is
// valid until the next call. A sync follows, and then done.
func (r *retention) record(groups []*group, watermark uint64, durable map[sharding.ShardID]uint64) []byte {
	if watermark < r.watermark {
		return nil
	}
	b := append(r.buf[:0], wire.PayloadVersion)
	b = binary.LittleEndian.AppendUint64(b, watermark)
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, 0)
	n := uint32(0)
	moved := watermark > r.watermark
	r.sizes = r.sizes[:0]
	for _, g := range groups {
		r.sizes = append(r.sizes, g.log.Bytes())
	}
	retain := raftlog.Share(r.sizes, r.opts.RetainBytes, r.opts.RetainTotalBytes)
	for _, g := range groups {
		if !r.transfers.pinned(g) {
			g.log.ForgetBehind()
		}
	}
	for _, g := range groups {
		if !g.uncut && (retain == r.opts.RetainBytes || g.log.Bytes() <= retain) {
			continue
		}
		index := g.cutTarget(durable[g.shard], retain)
		// Behind all that is durable, a follower cuts no more until it applies
		// more; a leader may be waiting for its followers.
		g.uncut = durable[g.shard] < g.applied || g.leader && index < g.applied
		if index <= g.written.Cut {
			continue
		}
		term, err := g.log.Term(index)
		if err != nil {
			continue
		}
		b = wire.AppendCut(b, wire.CutImage{Shard: uint32(g.shard), Replica: g.replica, Index: index, Term: term})
		g.written.Cut, g.written.CutTerm = index, term
		n++
		moved = true
	}
	r.buf = b
	r.due = slices.ContainsFunc(groups, func(g *group) bool {
		_, behind := g.log.Behind()
		return g.uncut || g.install.Index != 0 || behind
	})
	if !moved {
		return nil
	}
	binary.LittleEndian.PutUint32(b[at:], n)
	r.watermark = watermark
	return b
}

// cutTarget is how far the log may be cut: nothing that is not durable in the
// state machine, nor, where others may ask for it, the last bytes.
func (g *group) cutTarget(durable uint64, retain int64) uint64 {
	index := min(durable, g.applied)
	if g.alone() || g.stopped != sharding.NotStopped {
		return index
	}
	keep := g.log.TailIndex(retain)
	// Raft may have lost a leadership that is still to be reported; then it
	// knows nothing of the others.
	if progress := g.node.Status().Progress; len(progress) > 0 {
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

// done forgets the entries behind the cuts, after the record is durable,
// and returns the position before which the log is needed no more. tail is the
// log's.
func (r *retention) done(groups []*group, tail wal.Position, touch func(*group)) (before wal.Position) {
	before = tail
	for _, g := range groups {
		if g.written.Cut > g.log.Cut() {
			r.transfers.keepLog(g)
			g.log.Compact(g.written.Cut, g.written.CutTerm)
		}
		pos, ok := g.log.Needed()
		if !ok {
			continue
		}
		if pos.Segment+r.opts.MaxPinnedSegments < tail.Segment && (2*g.log.Bytes() < int64(r.opts.MaxRecordBytes) || g.stopped != sharding.NotStopped) {
			// An idle group holds old segments back, or one whose log is cut no
			// more: its entries move.
			g.rewrite = true
			touch(g)
		}
		if pos.Less(before) {
			before = pos
		}
	}
	return before
}
