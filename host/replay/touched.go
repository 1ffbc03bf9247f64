package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

const (
	// touchedAtOnce bounds the concurrent checks of touched entities.
	touchedAtOnce = 2
	// mostTouched bounds the entities of a shard that are replayed.
	mostTouched = 1 << 18
	// firstStride is the length of the first search step, in log indexes from the
	// end of the shard's log. The following steps grow.
	firstStride = 64
	// leastStride ends the search once the interval is this short.
	leastStride = 16
	// mostUnread bounds the entries with truncated records in one search step.
	mostUnread = 16
)

// errPlenty ends the reading of a shard's order early.
var errPlenty = errors.New("read enough of the event order")

// touched checks the entities of one shard whose newest event was written by
// a module that is not in q.ExcludeWrittenBy. It replays each entity with the
// module of q, and reports the entities on which the module fails, and the
// entities with events of types that the module's manifest does not list. If
// ctx ends early, the result contains what was found so far and is not
// complete.
func (r *Replays) touched(ctx context.Context, q modules.CompatibilityQuery) (out modules.Compatibility, err error) {
	select {
	case r.touching <- struct{}{}:
		defer func() { <-r.touching }()
	case <-ctx.Done():
		return out, nil
	}
	t := &touched{Options: r.opts, shard: q.Shard, entityType: q.EntityType, before: q.ExcludeWrittenBy, first: q.Initial, within: q.Current, skipsTruncated: q.TruncatedOnly}
	was := r.looked.last(q.Shard)
	if q.MinRevision > 0 && was.answers(q) {
		t.after = was.end
	}
	defer t.replayer.close()
	defer context.AfterFunc(ctx, t.replayer.interrupt)()
	ids, err := t.find(ctx)
	if err == nil && len(ids) > 0 {
		err = t.open(ctx, q.Digest)
	}
	out.Complete = len(ids) < mostTouched
	for i := 0; err == nil && i < len(ids); i++ {
		err = t.check(ctx, sharding.EntityID{Type: q.EntityType, ID: ids[i]}, &out)
	}
	if ctx.Err() != nil {
		out.Complete, err = false, nil
	}
	if out.Complete && out.FaultyEntities == 0 && err == nil {
		r.looked.keep(q.Shard, &cleanLook{q, t.end})
	}
	return out, err
}

// cleanLook is a query that touched answered and that found no problem.
type cleanLook struct {
	modules.CompatibilityQuery
	end uint64 // log index up to which the query looked
}

// answers reports whether the old query answers q for the log up to end.
func (l *cleanLook) answers(q modules.CompatibilityQuery) bool {
	return l != nil && l.EntityType == q.EntityType && l.Digest == q.Digest && l.Initial == q.Initial && l.Current == q.Current && slices.Equal(l.ExcludeWrittenBy, q.ExcludeWrittenBy)
}

// cleanLooks holds the last clean query of each shard. It is safe for
// concurrent use.
type cleanLooks struct {
	mu      sync.Mutex
	byShard map[sharding.ShardID]*cleanLook
}

// last returns the last clean query of a shard, or nil.
func (l *cleanLooks) last(shard sharding.ShardID) *cleanLook {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byShard[shard]
}

func (l *cleanLooks) keep(shard sharding.ShardID, last *cleanLook) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byShard == nil {
		l.byShard = map[sharding.ShardID]*cleanLook{}
	}
	l.byShard[shard] = last
}

// touched replays the entities of one type and shard with one module.
type touched struct {
	Options
	shard      sharding.ShardID
	entityType string
	before     []journal.Digest
	first      meta.Part // part that other modules served first; zero means all
	within     meta.Part // part that other modules serve now; zero means all
	after      uint64    // log index up to which entries were checked earlier
	end        uint64    // log index up to which entries are checked now

	skipsTruncated bool // leave entities with truncated histories to truncated

	replayer replayer
	durable  bool
	listed   map[string]bool // listed event types; nil: any
	newest   journal.Digest  // module of the last replayed record
	known    bool            // newest is set
}

// open loads the module.
func (t *touched) open(ctx context.Context, digest journal.Digest) error {
	served := t.Types.ServedType(t.entityType)
	if served == nil {
		return request.ErrModuleNotLoaded
	}
	m, err := t.Modules.ToRun(ctx, digest, "")
	if err != nil {
		return err
	}
	about, err := t.replayer.use(m, digest, t.entityType)
	if err != nil {
		return err
	}
	t.replayer.setBounds(served)
	t.durable, t.listed = about.Kind == manifest.DurableState, listedEvents(about)
	return nil
}

// find returns the entities that may be touched: those with records after the
// last record of a module in before. It searches for that record backwards
// from the end of the shard's order in growing strides, so that the cost
// depends on the number of records written since then, and not on the number
// of stored records.
func (t *touched) find(ctx context.Context) ([]string, error) {
	t.end, _ = t.Machine.Applied(t.shard)
	low, high, past := t.end, t.end, false
	for stride := uint64(firstStride); low > t.after && !past; stride *= 4 {
		high, low = low, max(t.after, low-min(low, stride))
		var err error
		if past, err = t.beforeIn(ctx, low, high); err != nil {
			return nil, err
		}
	}
	for past && high-low > leastStride {
		middle := low + (high-low)/2
		earlier, err := t.beforeIn(ctx, middle, high)
		if err != nil {
			return nil, err
		}
		if earlier {
			low = middle
		} else {
			high = middle
		}
	}
	seen := map[string]bool{}
	_, err := t.Machine.ReadOrder(ctx, t.shard, low, func(row *eventlog.OrderRow) error {
		if string(row.Type) != t.entityType || seen[string(row.ID)] || outside(t.within, row) {
			return nil
		}
		if len(seen) == mostTouched {
			return errPlenty
		}
		seen[string(row.ID)] = true
		return nil
	})
	if err != nil && !errors.Is(err, errPlenty) {
		return nil, err
	}
	ids := make([]string, 0, len(seen))
	for id := range seen {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, nil
}

// outside reports whether the entity of a row is outside the part.
func outside(part meta.Part, row *eventlog.OrderRow) bool {
	return part != (meta.Part{}) && !part.Contains(sharding.EntityID{Type: string(row.Type), ID: string(row.ID)})
}

// beforeIn reports whether the first readable record between two indexes was
// written by a module in before. It considers only entities of the type that
// other modules have served from the beginning of the rollout. Truncated
// records are skipped. If no record is readable, it returns false, so that the
// caller checks more.
func (t *touched) beforeIn(ctx context.Context, after, upTo uint64) (found bool, err error) {
	unread := 0
	_, err = t.Machine.ReadOrder(ctx, t.shard, after, func(row *eventlog.OrderRow) error {
		if row.At.Index > upTo || unread == mostUnread {
			return errPlenty
		}
		if string(row.Type) != t.entityType {
			return nil
		}
		if outside(t.first, row) {
			return nil // modules in before may have served this entity long after the others began
		}
		id, at, known := sharding.EntityID{Type: t.entityType, ID: string(row.ID)}, row.At, false
		err := t.Machine.Read(ctx, t.shard, id, row.First, func(place journal.Position, r *journal.Record) error {
			if known = place == at; known {
				found = slices.Contains(t.before, r.Module)
			}
			return errDone
		})
		var cut *journal.TruncatedError
		if err != nil && !errors.Is(err, errDone) && !errors.As(err, &cut) {
			return err
		}
		if known {
			return errPlenty
		}
		unread++
		return nil
	})
	if errors.Is(err, errPlenty) {
		err = nil
	}
	return found, err
}

// check replays one entity and records how the module fails on it.
func (t *touched) check(ctx context.Context, id sharding.EntityID, out *modules.Compatibility) error {
	used := t.replayer.guest != nil
	at, ours, err := t.one(ctx, id, full)
	var unlisted *unlistedError
	if used && refuses(err) && !errors.As(err, &unlisted) {
		// Repeat it in a fresh instance, without leftovers of previous entities.
		t.replayer.close()
		at, ours, err = t.one(ctx, id, full)
	}
	if errors.Is(err, errTruncated) && t.skipsTruncated {
		return nil
	}
	if err == nil || !refuses(err) {
		if ours && err == nil {
			out.Entities++
		}
		return errors.Join(err, ctx.Err())
	}
	if ctx.Err() != nil {
		return ctx.Err() // an interrupted guest proves nothing
	}
	if !ours {
		return nil // the module failed on events that modules in before have written
	}
	out.Entities++
	if out.FaultyEntities++; len(out.Faults) < modules.MaxReplayFaults {
		if at-1 <= eachEvents {
			// Repeat the replay event by event to find the event on which the module
			// fails.
			t.replayer.close()
			if first, _, again := t.one(ctx, id, single); refuses(again) {
				at, err = first, again
			}
		}
		out.Faults = append(out.Faults, modules.ReplayFault{EntityID: id.ID, At: at, EventType: eventType(ctx, t.Machine, t.shard, id, at), Message: err.Error()})
	}
	return ctx.Err()
}

// unlistedError: the module's manifest does not list the type of an event.
type unlistedError struct{ name string }

func (e *unlistedError) Error() string {
	return fmt.Sprintf("the module does not list events of type %s", e.name)
}

// refuses reports whether an error means that the module cannot handle the
// entity.
func refuses(err error) bool {
	var unlisted *unlistedError
	return guestFails(err) || errors.As(err, &unlisted) || errors.Is(err, errTruncated)
}

// one replays an entity as an executor does, from the snapshot that the module
// would load. at is the last event reached. ours reports whether the newest
// record was written by a module that is not in before.
func (t *touched) one(ctx context.Context, id sharding.EntityID, b batches) (at journal.Sequence, ours bool, err error) {
	t.replayer.batches = b
	info, err := t.Machine.Info(t.shard, id)
	if err != nil || info.Deleted || info.Sequence == 0 {
		return 0, false, err
	}
	var from journal.Sequence
	w := walk{id: id, to: &t.replayer, durable: t.durable, look: t.look}
	t.known = false
	if !t.durable {
		from, err = t.replayer.begin(ctx, t.Machine, t.shard, id, 0)
		w.at = from
	}
	if err == nil {
		err = w.read(ctx, t.Machine, t.shard, from, info.Sequence)
	}
	if err == nil && t.known {
		return w.at, t.others(t.newest), nil
	}
	ours, unread := t.ours(ctx, id, info.Sequence) // the newest record was not reached
	return w.at, ours, cmp.Or(unread, err)
}

// look rejects an event whose type the module does not list, unless a module in
// before has written it.
func (t *touched) look(r *journal.Record, i int) error {
	if t.newest, t.known = r.Module, true; t.listed != nil && !t.listed[r.Events[i].Type] && t.others(r.Module) {
		return &unlistedError{r.Events[i].Type}
	}
	return nil
}

// others reports whether the module is not one of the modules in before.
func (t *touched) others(by journal.Digest) bool { return !slices.Contains(t.before, by) }

// ours reports whether the record of the newest event was written by a module
// that is not in before.
func (t *touched) ours(ctx context.Context, id sharding.EntityID, newest journal.Sequence) (ours bool, err error) {
	_, err = eventAt(ctx, t.Machine, t.shard, id, newest, func(r *journal.Record, _ int) { ours = t.others(r.Module) })
	return ours, err
}
