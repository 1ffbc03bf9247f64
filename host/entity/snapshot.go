package entity

import (
	"time"

	"github.com/hostd/hostd/host/entity/binding"
	"github.com/hostd/hostd/host/entity/history"
	"github.com/hostd/hostd/host/entity/limit"
	"github.com/hostd/hostd/host/entity/supervise"
	"github.com/hostd/hostd/journal"
)

// A snapshot is taken of the state that the entity has in memory, which may be
// ahead of the commit. Its entry follows those of the events it holds in the
// log, with the last event's sequence and link: if any of them is lost, the
// snapshot is refused where it is applied.

// noSnapshotsFor is how long a module that failed to make a snapshot is not
// asked for another.
const noSnapshotsFor = time.Minute

// earlySnapshots is how many snapshots a lane takes in a second because of
// loads: they are no more than a few of a hundred entries of a busy lane.
const earlySnapshots = 200

// snapshots decides when one is taken, and what it carries.
type snapshots struct {
	*base
	// Modules that failed to make a snapshot, and until when none is asked for.
	refused map[journal.Digest]time.Time
	early   *limit.Rate // of those that are taken because of a load
}

func newSnapshots(b *base) snapshots {
	return snapshots{base: b, refused: make(map[journal.Digest]time.Time), early: limit.NewRate(earlySnapshots)}
}

// mayAsk reports that the guests of a module are asked for states.
func (p *snapshots) mayAsk(module journal.Digest) bool { return !p.refused[module].After(p.now) }

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
	if e.shard.full() || p.readOnly() || !p.mayAsk(e.typ.Digest) || !e.stands() {
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

// noSnapshot closes the instance of a guest that gave no state.
func (c *core) noSnapshot(e *entity, err error) {
	if !supervise.CutOff(err) {
		c.opts.Logger.Warn("a guest failed to make a snapshot", "entity_type", e.id.Type, "shard_id", e.shard.id, "error", err)
		c.stats.Faults++
		c.snapshots.refused[e.typ.Digest] = c.now.Add(noSnapshotsFor)
	}
	c.residents.closeInstance(e.inst)
}

// snapshotTaken proposes what the guest answered, behind the entity's records.
func (c *core) snapshotTaken(e *entity, v *Call) {
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
		return // it is loaded from its events
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
	var set binding.RetentionOverride
	if p.opts.Retention != nil {
		set = p.opts.Retention(e.id.Type)
	}
	snap.Retain, snap.Keep = e.typ.Retains(set)
	if x := e.extra; x != nil && x.beyond.Filter != nil {
		bits, ids := x.beyond.Filter.Bits()
		snap.Filter, snap.FilterIDs = bits, uint32(ids)
	}
	e.replay, e.costly = history.Replay{Snapshot: history.SnapshotCost(&snap)}, false
	data := make([]byte, journal.EntryHeaderBytes, journal.EntryHeaderBytes+len(state)+len(snap.Filter)+512)
	return journal.AppendSnapshot(data, &snap)
}
