package replay

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// mostTruncated bounds the entities of a shard whose comparison result is kept,
// at 40 bytes each.
const mostTruncated = 1 << 20

// truncated checks, with the module of q, the entities of one shard whose first
// events are gone and that the module cannot rebuild from a snapshot of its
// own. From the snapshot that is left, the module must reach the same state as
// the module that serves the entity. If the type is a workflow type, it replays
// all open runs instead, from their last checkpoint or their first event.
//
// It scans every entity of the type, but it remembers which entities it has
// compared. So the next call with the same query only scans the entity rows,
// and compares the entities that were written or got a new snapshot since
// then. If ctx ends early, the result contains what was found so far and is
// not complete; the next call continues from there.
//
// A paced call waits for its turn among verifications, and its budget starts
// then. It stops only between entities, so that each call compares at least
// one entity.
func (r *Replays) truncated(ctx context.Context, q modules.CompatibilityQuery) (out modules.Compatibility, err error) {
	seats, waiting := r.touching, ctx
	if q.Paced {
		var cancel context.CancelFunc
		seats = r.verifying
		waiting, cancel = context.WithTimeout(ctx, q.Budget)
		defer cancel()
	}
	select {
	case seats <- struct{}{}:
		defer func() { <-seats }()
	case <-waiting.Done():
		return out, nil
	}
	t := &truncated{verifier: verifier{Options: r.opts, shard: q.Shard, entityType: q.EntityType}, q: q, seed: r.compared.seed}
	if q.Paced {
		t.pace, t.until = r.pace, time.Now().Add(q.Budget)
	}
	defer t.close()
	defer context.AfterFunc(ctx, t.interrupt)()
	if err := t.openBoth(ctx); err != nil {
		return out, err
	}
	if !t.kind.IsReplayed() {
		out.Complete = true
		return out, nil
	}
	if q.PresenceOnly {
		err = t.candidates(ctx, func(id sharding.EntityID) error { return t.present(ctx, id, &out) })
		if out.Complete = err == nil || errors.Is(err, errEnough); out.Complete || ctx.Err() != nil {
			err = nil
		}
		return out, err
	}
	key := comparison{q.Shard, q.EntityType, q.Digest, t.serving.digest, q.IncludeSnapshots, q.Current.Share, q.Current.Prefix}
	t.compared = r.compared.take(key)
	defer func() { r.compared.keep(key, t.compared) }()
	out.Complete = true
	err = t.candidates(ctx, func(id sharding.EntityID) error { return t.entity(ctx, id, &out) })
	if ctx.Err() != nil || errors.Is(err, errEnough) {
		out.Complete, err = false, nil
	}
	return out, err
}

// errEnough ends the scan of a shard's entities early.
var errEnough = errors.New("checked enough entities")

// comparison is the key of a comparison: the two modules, and the entities that
// they were compared on.
type comparison struct {
	shard        sharding.ShardID
	entityType   string
	tried        journal.Digest
	serving      journal.Digest
	snapshots    bool
	withinShare  uint32
	withinPrefix string
}

// comparedEntities holds the compared entities, keyed by a hash of the id.
type comparedEntities map[uint64]comparedAt

// comparedAt is the version of an entity that was compared. Any later write or
// new snapshot changes it.
type comparedAt struct {
	last uint64 // log index of its last record
	base journal.Sequence
	// differs: the module computes a different state.
	differs bool
}

// comparisons keeps the last comparison of each shard. It is safe for
// concurrent use: a comparison is taken out while it is being continued.
type comparisons struct {
	mu      sync.Mutex
	seed    maphash.Seed
	byShard map[sharding.ShardID]comparisonOf
}

type comparisonOf struct {
	comparison
	entities comparedEntities
}

func (c *comparisons) take(key comparison) comparedEntities {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok := c.byShard[key.shard]
	delete(c.byShard, key.shard)
	if !ok || was.comparison != key {
		return comparedEntities{}
	}
	return was.entities
}

func (c *comparisons) keep(key comparison, entities comparedEntities) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byShard == nil {
		c.byShard = map[sharding.ShardID]comparisonOf{}
	}
	c.byShard[key.shard] = comparisonOf{key, entities}
}

// truncated compares entities of one type and shard.
type truncated struct {
	verifier
	q        modules.CompatibilityQuery
	seed     maphash.Seed
	loads    journal.SnapshotUse // snapshots that the tried module loads; others are loaded only as a last resort
	compared comparedEntities
	until    time.Time // end of a paced call
	looked   bool      // at least one entity was compared
}

// openBoth loads the tried module and the module that serves the entities
// now. If the query covers the part of a rollout, the serving module is the
// newer module.
func (t *truncated) openBoth(ctx context.Context) error {
	if err := t.open(ctx, t.q.Digest); err != nil {
		return err
	}
	if t.q.Current.Share == 0 && t.q.Current.Prefix == "" {
		t.loads = t.loadsOf(t.served)
		return nil
	}
	older := t.served
	newer := older.Newer()
	if newer == nil {
		return request.ErrModuleNotLoaded
	}
	m, err := t.Modules.Module(ctx, newer.Digest, "")
	if err != nil {
		return err
	}
	if _, err := t.serving.use(m, newer.Digest, t.entityType); err != nil {
		return err
	}
	t.serving.setBounds(newer)
	t.served, t.snapshotsOf = newer, newer.Snapshots.Modules
	t.loads = t.loadsOf(older)
	return nil
}

// loadsOf returns which snapshots the tried module is to load as its own:
// snapshots of all previous modules if q.IncludeSnapshots is set, and
// snapshots that it already loads if it serves entities of the type.
func (t *truncated) loadsOf(serves *modules.Served) journal.SnapshotUse {
	own := []journal.Digest{t.q.Digest}
	if t.q.IncludeSnapshots {
		own = append(append(own, t.snapshotsOf...), t.serving.digest)
	}
	if serves.Digest == t.q.Digest {
		own = append(own, serves.Snapshots.Modules...)
	}
	return journal.SnapshotsBy(own...)
}

// candidates calls visit for the entities of the shard that may have to be
// compared, in the order of their ids.
func (t *truncated) candidates(ctx context.Context, visit func(sharding.EntityID) error) error {
	return eachEntity(ctx, t.Machine, t.shard, t.entityType, "", func(e *eventlog.Info) error {
		if e.Cut != nil || t.q.IncludeSnapshots && e.Snapshots.Len() > 0 || t.kind == manifest.Workflow {
			return visit(e.Entity)
		}
		return nil
	})
}

// base returns the entity row and the snapshot that the module would load.
// concerned is false if the module need not be compared on this entity.
func (t *truncated) base(ctx context.Context, id sharding.EntityID) (head eventlog.Info, base *journal.Snapshot, concerned bool, err error) {
	head, err = t.Machine.Info(t.shard, id)
	if err != nil || head.Deleted || head.Sequence == 0 {
		return head, nil, false, err
	}
	if serves := t.Types.For(id); serves == nil || serves.Digest != t.serving.digest {
		return head, nil, false, nil // another module serves the entity, and will continue to
	}
	base, err = t.Machine.Snapshot(ctx, t.shard, id, t.loads, head.Sequence+1)
	if base == nil && err == nil && head.Cut != nil {
		base, err = t.Machine.Snapshot(ctx, t.shard, id, t.served.SnapshotUse, head.Sequence+1)
	}
	return head, base, true, err
}

// present ends the scan when it finds an open run, or an entity for which the
// module would have to load a snapshot of another module because the events
// before it are gone.
func (t *truncated) present(ctx context.Context, id sharding.EntityID, out *modules.Compatibility) error {
	if t.kind == manifest.Workflow {
		open, err := t.isOpen(ctx, id)
		if open && err == nil {
			out.Entities, err = 1, errEnough
		}
		return err
	}
	head, base, concerned, err := t.base(ctx, id)
	if err != nil || !concerned || head.Cut == nil || base == nil || base.Module == t.q.Digest {
		return err
	}
	out.Entities = 1
	return errEnough
}

// entity compares one entity if the module would load a snapshot of another
// module.
func (t *truncated) entity(ctx context.Context, id sharding.EntityID, out *modules.Compatibility) error {
	if t.looked && !t.until.IsZero() && time.Now().After(t.until) {
		return errEnough
	}
	head, base, concerned, err := t.base(ctx, id)
	if err == nil && !concerned {
		return nil
	}
	now, hash := comparedAt{last: head.Last.Index}, maphash.String(t.seed, id.ID)
	switch {
	case err != nil:
		return err
	case t.kind == manifest.Workflow:
		return t.run(ctx, id, head, now, hash, out)
	case base != nil && base.Module == t.q.Digest:
		return nil // the module has its own snapshot
	case base != nil:
		if now.base = base.Sequence; !slices.Contains(out.SnapshotDigests, base.Module) {
			out.SnapshotDigests = append(out.SnapshotDigests, base.Module)
		}
	case head.Cut == nil:
		return nil // the entity is replayed from its first event
	}
	was, known := t.compared[hash]
	differed := was.differs
	if was.differs = false; known && was == now && (!differed || t.q.AcceptDifferences) {
		if base != nil {
			out.Entities++
		}
		if differed {
			out.DifferingEntities++
		}
		return nil
	}
	t.looked = true
	if base == nil {
		whole, err := t.isComplete(ctx, id, head.Sequence)
		if err == nil && whole { // all events since its last deletion exist
			t.note(hash, now)
		} else if err == nil {
			out.UnreadableEntities++
		}
		return err
	}
	found, err := t.compareOne(ctx, id, head, base)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	out.Entities++
	fault := modules.ReplayFault{EntityID: id.ID, At: found.At, EventType: eventType(ctx, t.Machine, t.shard, id, found.At), Message: found.Difference}
	switch {
	case found.Fault:
		out.AddFault(fault)
	case found.Difference != "" || found.Uncompared:
		if found.Uncompared {
			fault.Message = "the active module computes no state to compare with"
		}
		out.AddDifference(fault)
		now.differs = true
		t.note(hash, now)
	default:
		t.note(hash, now)
	}
	return nil
}

// isOpen reports whether the entity of a workflow type is a run that has not
// ended.
func (t *truncated) isOpen(ctx context.Context, id sharding.EntityID) (bool, error) {
	head, err := t.Machine.Info(t.shard, id)
	if err != nil || head.Deleted || head.Sequence == 0 {
		return false, err
	}
	return eventType(ctx, t.Machine, t.shard, id, head.Sequence) != abi.RunEnded, nil
}

// run replays a run from its last checkpoint, or from its first event. The
// module must ask for the steps that the history has since then; a run that has
// ended does not matter.
func (t *truncated) run(ctx context.Context, id sharding.EntityID, head eventlog.Info, now comparedAt, hash uint64, out *modules.Compatibility) error {
	if was, known := t.compared[hash]; known && was == now {
		out.Entities++
		return nil
	}
	if eventType(ctx, t.Machine, t.shard, id, head.Sequence) == abi.RunEnded {
		return nil
	}
	t.looked = true
	found, err := t.fromCheckpoint(ctx, id, head.Sequence)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	out.Entities++
	if found.Truncated {
		found.Difference = "the events from which it would be replayed are gone, and no checkpoint is left"
	}
	if found.Difference != "" { // a difference or a fault, such as a workflow function that takes more steps than the history has
		out.AddFault(modules.ReplayFault{EntityID: id.ID, At: found.At, EventType: eventType(ctx, t.Machine, t.shard, id, found.At), Message: found.Difference})
		return nil
	}
	t.note(hash, now)
	return nil
}

func (t *truncated) note(hash uint64, now comparedAt) {
	if len(t.compared) < mostTruncated {
		t.compared[hash] = now
	}
}

// isComplete reports whether all events of the entity's current life exist.
func (t *truncated) isComplete(ctx context.Context, id sharding.EntityID, end journal.Sequence) (bool, error) {
	err := (&walk{id: id, to: nothing{}}).read(ctx, t.Machine, t.shard, 0, end)
	if errors.Is(err, errTruncated) {
		return false, nil
	}
	return err == nil, err
}

// nothing is a stateBuilder that computes no state.
type nothing struct{}

func (nothing) start(context.Context, sharding.EntityID, journal.Sequence, given) error { return nil }
func (nothing) add(context.Context, event) error                                        { return nil }
func (nothing) flush() error                                                            { return nil }

// compareOne lets both modules continue from the snapshot and compares the
// results.
func (t *truncated) compareOne(ctx context.Context, id sharding.EntityID, head eventlog.Info, base *journal.Snapshot) (out Verified, err error) {
	if head.Cut != nil {
		out, err = t.replayClean(ctx, id, head.Sequence, base)
		if errors.Is(err, errTruncated) { // a newer snapshot has truncated the following events
			return Verified{Uncompared: true}, nil
		}
		if err == nil && out.Difference != "" && !out.Fault {
			err = t.explain(ctx, id, head.Sequence, base, &out)
		}
		return out, err
	}
	if out, err = t.replayClean(ctx, id, head.Sequence, nil); err == nil && out.Difference == "" && !out.Uncompared {
		err = t.snapshots(ctx, id, head.Sequence, &out)
	}
	return out, err
}
