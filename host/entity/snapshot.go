package entity

import (
	"fmt"
	"math"
	"time"

	"github.com/hostd/hostd/journal"
)

// A snapshot is taken of the state that the entity has in memory, which may be
// ahead of the commit. Its entry follows those of the events it holds in the
// log, with the last event's sequence and link: if any of them is lost, the
// snapshot is refused where it is applied.

// replay is what a load of an entity would have to go through.
type replay struct {
	events   int32 // since the newest snapshot
	bytes    int32 // of their records
	snapshot int32 // what a snapshot must be worth
}

func (r *replay) add(events, bytes int) {
	r.events = int32(min(int(r.events)+events, math.MaxInt32))
	r.bytes = int32(min(int(r.bytes)+bytes, math.MaxInt32))
}

// snapshotCost is what a snapshot must be worth in bytes of records. A filter
// is there for convenience, and may only be a small part of what is written.
func snapshotCost(s *journal.Snapshot) int32 { return int32(len(s.State) + 8*len(s.Filter)) }

// noSnapshotsFor is how long a module that failed to make a snapshot is not
// asked for another.
const noSnapshotsFor = time.Minute

var errStraySnapshot = fmt.Errorf("%w: a snapshot is not of the entity's history", journal.ErrDamaged)

// earlySnapshots is how many snapshots a lane takes in a second because of
// loads: they are no more than a few of a hundred entries of a busy lane.
const earlySnapshots = 200

// isCostly reports that the load of an entity had so much to replay that the
// next one is worth a snapshot, and that nobody has said when there is to be
// one. Records without events are spared by one only if it has a filter.
func (c *core) isCostly(e *entity) bool {
	r := &e.replay
	worth := r.events > 0 || e.rest != nil && e.rest.partial
	return e.typ.SnapshotEvery == 0 && (int(r.events) >= c.opts.ReplayEvents || worth && int(r.bytes) >= c.opts.ReplayBytes)
}

// wantsSnapshot reports whether it is time for a snapshot: it is due, and the
// entity has nothing else to do, or it has been due for long. After a load that
// had much to replay it is due early, if not too many are: the entity has shown
// that it comes and goes.
func (c *core) wantsSnapshot(e *entity) bool {
	events, bytes := c.opts.SnapshotEvents, c.opts.SnapshotBytes
	seen, size := int(e.replay.events), int(e.replay.bytes)
	// A large state is written again only when as much has come in records.
	worth := size
	if every := e.typ.SnapshotEvery; every != 0 {
		events, bytes, worth = every, 1<<62, 4*size
	}
	due := seen >= events || size >= bytes
	if !due && !e.costly || seen == 0 && !e.costly || events < 0 || worth < int(e.replay.snapshot) {
		return false
	}
	if e.waiting.len > 0 && seen < 2*events && size/2 < bytes {
		return false
	}
	if e.shard.full(c) || c.readOnly() || c.noSnapshots[e.typ.Digest].After(c.now) || !c.stands(e) {
		return false
	}
	return due || c.early.take(c.now.UnixNano()) == 0
}

// standing is where a window began when a proposal was not decided.
type standing struct {
	proposal uint64 // the newest then; 0 for none
	oldest   journal.Sequence
}

// stands reports whether it is known where the window of a snapshot begins. A
// full one forgets commands for those that come, and of these one without events
// may be lost although what follows is not: then what was forgotten for it is in
// the window all the same. So while anything is in flight the snapshot's window
// is one of before, where everything in it was decided since.
func (c *core) stands(e *entity) bool {
	if e.last <= e.shard.decided || !c.opts.Window.full(e.seen.size()) {
		return true
	}
	x := e.more()
	if x.stands.proposal == 0 {
		x.stands = standing{e.last, c.windowFrom(e)}
	}
	return x.stands.proposal <= e.shard.decided
}

// standsNow reports that a proposal was waited for so, which is decided.
func (e *entity) standsNow(proposal uint64) bool {
	return e.rest != nil && e.rest.stands.proposal == proposal && e.phase == resident
}

// snapshotWindow is where the window of a snapshot begins that is taken now.
func (c *core) snapshotWindow(e *entity) journal.Sequence {
	from := c.windowFrom(e)
	if x := e.rest; x != nil && x.stands.proposal != 0 {
		if e.last > e.shard.decided {
			from = min(from, x.stands.oldest)
		}
		x.stands = standing{}
		e.less()
	}
	return from
}

// windowFrom is the last sequence of the oldest record that the entity
// remembers, or its own.
func (c *core) windowFrom(e *entity) journal.Sequence {
	from := e.sequence
	if first, some := e.seen.oldest(); some {
		from = min(from, first)
	}
	if x := e.rest; x != nil && x.partial {
		from = min(from, x.older)
	}
	return from
}

func (c *core) takeSnapshot(e *entity) {
	v := c.call
	v.kind, v.in, v.entity, v.handle = callSnapshot, e.inst, e, uint64(e.handle)
	c.visit(v)
}

// snapshotTaken proposes what the guest answered, behind the entity's records.
func (c *core) snapshotTaken(e *entity, v *call) {
	s := e.shard
	if cutOff(v.err) {
		c.closeInstance(e.inst)
		return
	}
	if v.err != nil {
		c.opts.Logger.Warn("a guest failed to make a snapshot", "entity_type", e.id.Type, "shard_id", s.id, "error", v.err)
		c.stats.Faults++
		c.noSnapshots[e.typ.Digest] = c.now.Add(noSnapshotsFor)
		c.closeInstance(e.inst)
		return
	}
	snap := journal.Snapshot{Entity: e.id, Sequence: e.sequence, Hash: e.hash, Module: e.typ.Digest, Window: c.snapshotWindow(e), State: v.out}
	snap.Retain, snap.Keep = c.retains(e.typ)
	if x := e.rest; x != nil && x.filter != nil {
		snap.Filter, snap.FilterIDs = x.filter.bits, uint32(x.filter.ids)
	}
	e.replay, e.costly = replay{snapshot: snapshotCost(&snap)}, false
	data := make([]byte, journal.EntryHeaderBytes, journal.EntryHeaderBytes+len(v.out)+len(snap.Filter)+512)
	if data = journal.AppendSnapshot(data, &snap); len(data) > journal.MaxSnapshotBytes {
		return // it is loaded from its events
	}
	c.propose(s)
	if s.state != leading || e.phase != resident {
		return // the log refused the records it stands on
	}
	journal.AppendEntryHeader(data[:0], journal.EntrySnapshot, s.term, s.next)
	p := proposal{number: s.next, bytes: len(data)}
	s.next++
	c.stats.Snapshots++
	c.send(s, p, data)
}
