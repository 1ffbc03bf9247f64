package entity

import (
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
)

// A snapshot is taken of the state that the entity has in memory, which may be
// ahead of the commit. Its entry follows those of the events it holds in the
// log, with the last event's sequence and link: if any of them is lost, the
// snapshot is refused where it is applied.

// noSnapshotsFor is how long a module that failed to make a snapshot is not
// asked for another.
const noSnapshotsFor = time.Minute

// earlySnapshots is how many snapshots an executor takes in a second because of
// loads: they are no more than a few of a hundred entries of a busy lane.
const earlySnapshots = 200

// snapshots decides when one is taken, and what it carries.
type snapshots struct {
	*base
	// Modules that failed to make a snapshot, each with a few entities.
	failures map[journal.Digest]failures
	early    *Rate // of those that are taken because of a load
}

func newSnapshots(b *base) snapshots {
	return snapshots{base: b, failures: make(map[journal.Digest]failures), early: NewRate(earlySnapshots)}
}

// failuresOfModule is how many calls for a snapshot fail before a module is not
// asked any more: fewer may be the fault of one entity.
const failuresOfModule = 3

// failures of a module within noSnapshotsFor.
type failures struct {
	calls int
	until time.Time
}

// mayAsk reports that the guests of a module are asked for states.
func (p *snapshots) mayAsk(module journal.Digest) bool {
	f, some := p.failures[module]
	return !some || f.calls < failuresOfModule || !f.until.After(p.now)
}

// failed counts a call for a snapshot that failed.
func (p *snapshots) failed(module journal.Digest) {
	f := p.failures[module]
	if !f.until.After(p.now) {
		f.calls = 0
	}
	p.failures[module] = failures{f.calls + 1, p.now.Add(noSnapshotsFor)}
}

// oversize notes that an entity's state is too large for a snapshot, or that
// its guest failed to make one. It concerns this entity alone.
type oversize struct {
	until time.Time // no snapshot is asked for
	why   string
}

// lastError says what went wrong with the entity last, and why it gets no
// snapshot.
func (e *entity) lastError() string {
	switch {
	case e.extra == nil:
		return ""
	case e.extra.oversize.why == "":
		return e.extra.faults.Last()
	case e.extra.faults.Last() == "":
		return e.extra.oversize.why
	}
	return e.extra.faults.Last() + "; " + e.extra.oversize.why
}

// isCostly reports that the load of an entity had so much to replay that the
// next one is worth a snapshot, and that nobody has said when there is to be
// one. Records without events are spared by one only if it has a filter.
func (e *entity) isCostly() bool {
	r := &e.replay
	worth := r.Events > 0 || e.extra != nil && e.extra.beyond.Partial
	return e.typ.SnapshotEvery == 0 && (int(r.Events) >= e.shard.opts.ReplayEvents || worth && int(r.Bytes) >= e.shard.opts.ReplayBytes)
}

// wanted reports whether it is time for a snapshot: it is due, and the
// entity has nothing else to do, or it has been due for long. After a load that
// had much to replay it is due early, if not too many are: the entity has shown
// that it comes and goes.
func (p *snapshots) wanted(e *entity) bool {
	events, bytes := p.opts.SnapshotEvents, p.opts.SnapshotBytes
	seen, size := int(e.replay.Events), int(e.replay.Bytes)
	// A large state is written again only when as much has come in records.
	worth := size
	if every := e.typ.SnapshotEvery; every != 0 {
		events, bytes, worth = every, 1<<62, 4*size
	}
	due := seen >= events || size >= bytes
	if !due && !e.costly || seen == 0 && !e.costly || events < 0 || worth < int(e.replay.Snapshot) {
		return false
	}
	if e.waiting.Len() > 0 && seen < 2*events && size/2 < bytes {
		return false
	}
	if e.shard.full() || p.readOnly() || !p.mayAsk(e.typ.Digest) || e.extra != nil && e.extra.oversize.until.After(p.now) || !e.stands() {
		return false
	}
	return due || p.early.Take(p.now.UnixNano()) == 0
}

// standing is where a window began when a proposal was not decided.
type standing struct {
	proposal uint64 // the newest then; 0 for none
	oldest   journal.Sequence
}

// stands reports whether it is known where the window of a snapshot begins. A
// full one forgets commands for those that come, and of these one without
// events may be lost although what follows is not: then what was forgotten for
// it is in the window all the same. So while anything is in flight the
// snapshot's window is one of before, where everything in it was decided since.
func (e *entity) stands() bool {
	if e.last <= e.shard.log.Decided() || !e.shard.opts.Window.Full(e.seen.Size()) {
		return true
	}
	x := e.withExtra()
	if x.stands.proposal == 0 {
		x.stands = standing{e.last, e.windowFrom()}
	}
	return x.stands.proposal <= e.shard.log.Decided()
}

// standsNow reports that a proposal was waited for so, which is decided.
func (e *entity) standsNow(proposal uint64) bool {
	return e.extra != nil && e.extra.stands.proposal == proposal && e.phase == inMemory
}

// snapshotWindow is where the window of a snapshot begins that is taken now.
func (e *entity) snapshotWindow() journal.Sequence {
	from := e.windowFrom()
	if x := e.extra; x != nil && x.stands.proposal != 0 {
		if e.last > e.shard.log.Decided() {
			from = min(from, x.stands.oldest)
		}
		x.stands = standing{}
		e.trimExtra()
	}
	return from
}

// windowFrom is the last sequence of the oldest record that the entity
// remembers, or its own.
func (e *entity) windowFrom() journal.Sequence {
	from := e.sequence
	if first, some := e.seen.Oldest(); some {
		from = min(from, first)
	}
	if x := e.extra; x != nil && x.beyond.Partial {
		from = min(from, x.beyond.Older)
	}
	return from
}

func (c *core) takeSnapshot(e *entity) {
	v := c.call
	v.kind, v.in, v.entity, v.handle = callSnapshot, e.inst, e, uint64(e.handle)
	c.visit(v)
}

// noSnapshot closes the instance of a guest that gave no state, unless the
// state is too large.
func (c *core) noSnapshot(e *entity, err error) {
	switch {
	case errors.Is(err, abi.ErrOverLimit):
		c.tooLarge(e, err.Error())
		return
	case !isCutOff(err):
		c.stats.Faults++
		c.snapshots.failed(e.typ.Digest)
		c.withoutSnapshot(e, "a guest failed to make a snapshot", err.Error())
	}
	c.residents.closeInstance(e.inst)
}

// tooLarge notes that an entity has no snapshot because of its size. It is
// loaded from its events.
func (c *core) tooLarge(e *entity, why string) {
	c.stats.SnapshotsTooLarge++
	c.withoutSnapshot(e, "an entity's state is too large for a snapshot", why)
}

func (c *core) withoutSnapshot(e *entity, message, why string) {
	e.withExtra().oversize = oversize{until: c.now.Add(noSnapshotsFor), why: "no snapshot: " + why}
	c.opts.Logger.Warn(message, "entity_type", e.id.Type, "entity_id", e.id.ID, "shard_id", e.shard.id, "error", why)
}

// snapshotTaken proposes what the guest answered, behind the entity's records.
func (c *core) snapshotTaken(e *entity, v *guestCall) {
	s := e.shard
	if v.err != nil {
		c.noSnapshot(e, v.err)
		return
	}
	if c.outdated(e) {
		return
	}
	data := c.snapshots.entry(e, v.out)
	if len(data) > journal.MaxSnapshotBytes {
		c.tooLarge(e, fmt.Sprintf("the state has %d bytes, and %d with the entity's window, limit %d", len(v.out), len(data), journal.MaxSnapshotBytes))
		return
	}
	if e.extra != nil && e.extra.oversize.why != "" {
		e.extra.oversize = oversize{}
		e.trimExtra()
	}
	s.proposeBatch()
	if s.state != leading || e.phase != inMemory {
		return // the log refused the records it stands on
	}
	journal.AppendPacedHeader(data[:0], c.opts.Level(), journal.EntrySnapshot, s.term, s.log.Next())
	c.stats.Snapshots++
	s.propose(proposal{}, data)
}

// entry is what is proposed of an entity's state, without a header. The entity
// counts what a load replays from there on.
func (p *snapshots) entry(e *entity, state []byte) []byte {
	snap := journal.Snapshot{Entity: e.id, Sequence: e.sequence, Hash: e.hash, Module: e.typ.Digest, Window: e.snapshotWindow(), State: state}
	var set RetentionOverride
	if p.opts.Retention != nil {
		set = p.opts.Retention(e.id.Type)
	}
	snap.Retain, snap.Keep = e.typ.Retains(set)
	if x := e.extra; x != nil && x.beyond.Filter != nil {
		bits, ids := x.beyond.Filter.Bits()
		snap.Filter, snap.FilterIDs = bits, uint32(ids)
	}
	e.replay, e.costly = historyReplay{Snapshot: snapshotCost(&snap)}, false
	data := make([]byte, journal.EntryHeaderBytes, journal.EntryHeaderBytes+len(state)+len(snap.Filter)+512)
	return journal.AppendSnapshot(data, &snap)
}
