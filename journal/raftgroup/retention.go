package raftgroup

import (
	"encoding/binary"
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// checkpoint appends to dst the state that a reader needs to start at this
// point of the log: the groups as the records appended so far left them.
func (c *Core) checkpoint(dst []byte) []byte {
	dst = wire.BeginCheckpoint(dst, c.retention.watermark, len(c.order))
	for _, g := range c.order {
		dst = wire.AppendImage(dst, &g.written)
	}
	return wire.EndCheckpoint(dst, c.former)
}

// retention decides up to which index the groups' logs are truncated, and how
// many bytes of them are kept.
type retention struct {
	opts      *Options
	transfers *transfers
	watermark uint64 // the state machine's durable version at the last written truncation
	pending   bool   // something can be truncated, now or when more entries are durable
	// bringUpToDate ends the steady state of a group.
	bringUpToDate func(*group)
	sizes         []int64
	buf           []byte
}

// canTruncate reports whether the log may be truncated now. It must not be
// truncated while an applied membership change is unwritten: a restart from the
// new watermark would not apply the change again, so the log must contain the
// change's result before the watermark.
func (r *retention) canTruncate(dirty []*group) bool {
	unwritten := func(g *group) bool { return g.confUnwritten }
	return r.pending && !slices.ContainsFunc(dirty, unwritten)
}

// truncateRecord returns the payload of a record that advances the truncated
// indexes of the groups to the indexes that the state machine holds durably, or
// nil if nothing changes. It is valid until the next call. The caller syncs the
// record and then calls compact.
func (r *retention) truncateRecord(groups []*group, watermark uint64, durable map[sharding.ShardID]uint64) []byte {
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
	retain := shareBytes(r.sizes, r.opts.RetainBytes, r.opts.RetainTotalBytes)
	for _, g := range groups {
		if !r.transfers.hasPins(g) {
			g.log.DropCatchUp()
		}
	}
	for _, g := range groups {
		if !g.truncatable && (retain == r.opts.RetainBytes || g.log.Bytes() <= retain) {
			continue
		}
		index := g.truncateTarget(durable[g.shard], retain)
		// Once all durable entries are truncated, a follower has nothing to truncate
		// until it applies more entries. A leader may still have to wait for its
		// followers.
		g.truncatable = durable[g.shard] < g.applied || g.leader && index < g.applied
		if index <= g.written.TruncatedIndex {
			continue
		}
		term, err := g.log.Term(index)
		if err != nil {
			continue
		}
		if g.steady.on && g.raw.BasicStatus().Applied < index {
			if r.bringUpToDate(g); g.failed { // raft must have applied what is truncated
				continue
			}
		}
		b = wire.AppendTruncation(b, wire.TruncateImage{Shard: uint32(g.shard), Replica: g.replica, Index: index, Term: term})
		g.written.TruncatedIndex, g.written.TruncatedTerm = index, term
		n++
		moved = true
	}
	r.buf = b
	r.pending = slices.ContainsFunc(groups, func(g *group) bool {
		_, behind := g.log.CatchUpBytes()
		return g.truncatable || g.install.Index != 0 || behind
	})
	if !moved {
		return nil
	}
	binary.LittleEndian.PutUint32(b[at:], n)
	r.watermark = watermark
	return b
}

// truncateTarget returns the index up to which the log may be truncated: never
// beyond the state machine's durable index, and keeping retain bytes if other
// members may ask for them.
func (g *group) truncateTarget(durable uint64, retain int64) uint64 {
	index := min(durable, g.applied)
	if g.isAlone() || g.stopped != sharding.NotStopped {
		return index
	}
	keep := g.log.TailIndex(retain)
	// Raft may have lost its leadership without having reported that yet. It then
	// no longer knows the other members' progress.
	if progress := g.progress(); len(progress) > 0 {
		slowest := index
		for _, p := range progress {
			if p.id != g.replica {
				slowest = min(slowest, p.match)
			}
		}
		keep = max(keep, slowest)
	}
	return min(index, keep)
}

// compact drops the truncated entries from memory after the record is durable, and
// returns the position before which the log is no longer needed. tail is the
// end of the log.
func (r *retention) compact(groups []*group, tail wal.Position, touch func(*group)) (before wal.Position) {
	before = tail
	for _, g := range groups {
		if g.written.TruncatedIndex > g.log.TruncatedIndex() {
			r.transfers.keepLog(g)
			g.log.Compact(g.written.TruncatedIndex, g.written.TruncatedTerm)
		}
		pos, ok := g.log.OldestPosition()
		if !ok {
			continue
		}
		if pos.Segment+r.opts.MaxPinnedSegments < tail.Segment && (2*g.log.Bytes() < int64(r.opts.MaxRecordBytes) || g.stopped != sharding.NotStopped) {
			// An idle group, or a stopped group whose log is no longer truncated, pins
			// old segments. Its entries are therefore rewritten at the end of the log.
			g.rewrite = true
			touch(g)
		}
		if pos.Less(before) {
			before = pos
		}
	}
	return before
}
