package entity

import (
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// A snapshot is taken of the entity's state in memory, which may be ahead of
// the commit. The snapshot's entry follows the entries of its events in the
// log, and has the sequence and the chain's hash of the last event. If any of
// these events is lost, the apply rejects the snapshot.

// noSnapshotsFor is how long a module or entity is not asked for snapshots
// after a failure.
const noSnapshotsFor = time.Minute

// earlySnapshots is the number of snapshots per second that an executor takes
// early because loads are expensive. It is a few per cent of the entries of a
// busy executor.
const earlySnapshots = 200

// snapshots decides when a snapshot is taken, and builds its entry.
type snapshots struct {
	*base
	// failures counts the failures of modules to make a snapshot.
	failures map[journal.Digest]failures
	early    *Rate // limits early snapshots
}

func newSnapshots(b *base) snapshots {
	return snapshots{base: b, failures: make(map[journal.Digest]failures), early: NewRate(earlySnapshots)}
}

// failuresOfModule is the number of failures after which a module is not asked
// for snapshots. A lower number of failures may be the fault of one entity.
const failuresOfModule = 3

// failures counts the failures of a module within a period of noSnapshotsFor.
type failures struct {
	calls int
	until time.Time
}

// mayAsk reports whether guests of the module may be asked for states.
func (p *snapshots) mayAsk(module journal.Digest) bool {
	f, some := p.failures[module]
	return !some || f.calls < failuresOfModule || !f.until.After(p.now)
}

// countFailure counts a failed snapshot call.
func (p *snapshots) countFailure(module journal.Digest) {
	f := p.failures[module]
	if !f.until.After(p.now) {
		f.calls = 0
	}
	p.failures[module] = failures{f.calls + 1, p.now.Add(noSnapshotsFor)}
}

// oversize notes that one entity's state is too large for a snapshot, or that
// its guest failed to make a snapshot.
type oversize struct {
	until time.Time // no snapshot is requested before this time
	why   string
}

// lastError returns the entity's last error, and why it gets no snapshot.
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

// isCostly reports whether the entity's load replayed so much that a snapshot
// is worthwhile, for a type that sets no number of events between snapshots. If
// the load replayed only records without events, a snapshot saves their replay
// only if it has a filter.
func (e *entity) isCostly() bool {
	r := &e.replay
	worth := r.Events > 0 || e.extra != nil && e.extra.beyond.Partial
	return e.typ.SnapshotEvery == 0 && (int(r.Events) >= e.shard.opts.ReplayEvents || worth && int(r.Bytes) >= e.shard.opts.ReplayBytes)
}

// isDue reports whether to take a snapshot now: it is due and the entity has
// nothing else to do, or it is long overdue. After an expensive load it is due
// early, within a rate limit, because the entity is likely to leave and to be
// loaded again.
func (p *snapshots) isDue(e *entity) bool {
	events, bytes := p.opts.SnapshotEvents, p.opts.SnapshotBytes
	seen, size := int(e.replay.Events), int(e.replay.Bytes)
	// A large state is written again only after about as many bytes of records.
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
	if e.shard.isFull() || p.readOnly() || !p.mayAsk(e.typ.Digest) || e.extra != nil && e.extra.oversize.until.After(p.now) || !e.isWindowStartKnown() {
		return false
	}
	return due || p.early.Take(p.now.UnixNano()) == 0
}

// windowStart remembers where a window began while proposals were undecided.
type windowStart struct {
	proposal uint64 // the latest proposal when the beginning was noted; 0 for none
	oldest   journal.Sequence
}

// isWindowStartKnown reports whether a snapshot taken now would know where
// its window begins. A full window forgets a command for each new command. If
// the record of the new command has no events, it may be lost although later
// records are committed, and then the forgotten command belongs to the window
// again. So if the entity has undecided proposals, isWindowStartKnown notes
// where the window begins now, and the snapshot is taken with this beginning
// once these proposals are decided.
func (e *entity) isWindowStartKnown() bool {
	if e.last <= e.shard.log.DecidedTo() || !e.shard.opts.Window.Full(e.seen.Size()) {
		return true
	}
	x := e.withExtra()
	if x.windowStart.proposal == 0 {
		x.windowStart = windowStart{e.last, e.windowFrom()}
	}
	return x.windowStart.proposal <= e.shard.log.DecidedTo()
}

// awaitedForWindow reports whether the entity's snapshot waited for this
// proposal, which is now decided.
func (e *entity) awaitedForWindow(proposal uint64) bool {
	return e.extra != nil && e.extra.windowStart.proposal == proposal && e.phase == inMemory
}

// snapshotWindow returns the beginning of the window for a snapshot taken now.
func (e *entity) snapshotWindow() journal.Sequence {
	from := e.windowFrom()
	if x := e.extra; x != nil && x.windowStart.proposal != 0 {
		if e.last > e.shard.log.DecidedTo() {
			from = min(from, x.windowStart.oldest)
		}
		x.windowStart = windowStart{}
		e.trimExtra()
	}
	return from
}

// windowFrom returns the last sequence of the oldest remembered record, or the
// entity's sequence if none is remembered.
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
	c.makeCall(v)
}

// noSnapshot handles a failed snapshot call. It closes the instance unless the
// state was merely too large.
func (c *core) noSnapshot(e *entity, err error) {
	switch {
	case errors.Is(err, abi.ErrOverLimit):
		c.tooLarge(e, err.Error())
		return
	case !isCutOff(err):
		c.stats.Faults++
		c.snapshots.countFailure(e.typ.Digest)
		c.withoutSnapshot(e, "the guest failed to create a snapshot", err.Error())
	}
	c.residents.closeInstance(e.inst)
}

// tooLarge notes that an entity's state is too large for a snapshot. The entity
// is loaded from its events.
func (c *core) tooLarge(e *entity, why string) {
	c.stats.SnapshotsTooLarge++
	c.withoutSnapshot(e, "the entity's state is too large for a snapshot", why)
}

func (c *core) withoutSnapshot(e *entity, message, why string) {
	e.withExtra().oversize = oversize{until: c.now.Add(noSnapshotsFor), why: "no snapshot: " + why}
	c.opts.Logger.Warn(message, "entity_type", e.id.Type, "entity_id", e.id.ID, "shard_id", e.shard.id, "error", why)
}

// snapshotTaken proposes the snapshot, after the entity's records.
func (c *core) snapshotTaken(e *entity, v *guestCall) {
	if v.err != nil {
		c.noSnapshot(e, v.err)
		return
	}
	if c.isOutdated(e) {
		return
	}
	data := c.snapshots.entry(e, v.out)
	if len(data) > journal.MaxSnapshotBytes {
		c.tooLarge(e, fmt.Sprintf("the state has %d bytes, and %d with the idempotency window, limit %d", len(v.out), len(data), journal.MaxSnapshotBytes))
		return
	}
	if e.extra != nil && e.extra.oversize.why != "" {
		e.extra.oversize = oversize{}
		e.trimExtra()
	}
	c.proposeSnapshot(e, data)
}

// proposeSnapshot proposes a snapshot entry after the entity's records.
func (c *core) proposeSnapshot(e *entity, data []byte) {
	s := e.shard
	s.proposeBatch()
	if s.state != leading || e.phase != inMemory {
		return // the log rejected the snapshot's records
	}
	journal.AppendPacedHeader(data[:0], c.opts.ClusterVersion(), journal.EntrySnapshot, s.term, s.log.Next())
	c.stats.Snapshots++
	s.propose(proposal{}, data)
}

// checkpointOf returns the payload of the run's checkpoint if it is the
// output's last event, or nil. Only the last event of a record can be a
// snapshot.
func checkpointOf(out *abi.Output) []byte {
	if n := len(out.Events); n > 0 && string(out.Events[n-1].Type) == abi.RunCheckpoint {
		return out.Events[n-1].Payload
	}
	return nil
}

// checkpoint stores the payload of a run's checkpoint, the last event of the
// run's last record, as the run's snapshot. The guest is not asked for a
// state, and every module of the type loads the snapshot. The snapshot only
// saves work: if it is lost with its leader or cannot be taken now, a load
// replays the run from an earlier snapshot, and the guest begins again at the
// checkpoint event.
func (c *core) checkpoint(e *entity, payload []byte) {
	if c.opts.ClusterVersion() < sharding.VersionWorkflows || e.shard.isFull() || !e.isWindowStartKnown() {
		return
	}
	if data := c.snapshots.entry(e, payload); len(data) <= journal.MaxSnapshotBytes {
		c.proposeSnapshot(e, data)
	}
}

// entry returns a snapshot entry of the entity's state, without its header. It
// also resets the count of the events and bytes that a load must replay.
func (p *snapshots) entry(e *entity, state []byte) []byte {
	snap := journal.Snapshot{Entity: e.id, Sequence: e.sequence, Hash: e.hash, Module: e.typ.Digest, Window: e.snapshotWindow(), State: state}
	snap.Retain, snap.Keep = e.typ.Retains(p.opts.Settings.RetentionOverride(e.id.Type))
	if e.typ.Workflow {
		snap.Module, snap.Checkpoint, snap.Chain = journal.NoModule, true, e.chain()
	}
	if x := e.extra; x != nil && x.beyond.Filter != nil {
		bits, ids := x.beyond.Filter.Bits()
		snap.Filter, snap.FilterIDs = bits, uint32(ids)
	}
	e.replay, e.costly = historyReplay{Snapshot: snapshotCost(&snap)}, false
	data := make([]byte, journal.EntryHeaderBytes, journal.EntryHeaderBytes+len(state)+len(snap.Filter)+512)
	return journal.AppendSnapshot(data, &snap)
}
