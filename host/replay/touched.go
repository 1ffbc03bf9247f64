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
	// touchedAtOnce bounds the shards whose touched entities are folded at a time.
	touchedAtOnce = 2
	// mostTouched bounds the entities of a shard that are folded.
	mostTouched = 1 << 18
	// firstStride is how many entries of a shard are looked at first, from its
	// end, for the last record of a module that served before; then ever more.
	firstStride = 64
	// leastStride ends the search for it.
	leastStride = 16
	// mostUnread bounds the rows of one look whose records were cut.
	mostUnread = 16
)

// errPlenty ends the reading of an order.
var errPlenty = errors.New("that is enough of the order")

// Touched folds, by the module of q, those entities of one shard whose newest
// event is by none of q.WrittenNotBy: what other modules have written since
// one of these served last. It tells which of them the module fails on, or of
// which it does not list a type of those events. Where ctx ends before, it has
// what was found until then, and is not complete.
func (r *Replays) Touched(ctx context.Context, q modules.FitQuery) (out modules.Fit, err error) {
	select {
	case r.touching <- struct{}{}:
		defer func() { <-r.touching }()
	case <-ctx.Done():
		return out, nil
	}
	t := &touched{Options: r.opts, shard: q.Shard, entityType: q.EntityType, before: q.WrittenNotBy, first: q.First, within: q.Within, skipsTruncated: q.Truncated}
	was := r.looked.last(q.Shard)
	if q.Fence > 0 && was.answers(q) {
		t.after = was.end
	}
	defer t.fold.close()
	defer context.AfterFunc(ctx, t.fold.interrupt)()
	ids, err := t.find(ctx)
	if err == nil && len(ids) > 0 {
		err = t.open(ctx, q.Digest)
	}
	out.Complete = len(ids) < mostTouched
	for i := 0; err == nil && i < len(ids); i++ {
		err = t.judge(ctx, sharding.EntityID{Type: q.EntityType, ID: ids[i]}, &out)
	}
	if ctx.Err() != nil {
		out.Complete, err = false, nil
	}
	if out.Complete && out.Failing == 0 && err == nil {
		r.looked.keep(q.Shard, &cleanLook{q, t.end})
	}
	return out, err
}

// cleanLook is a Touched that found nothing.
type cleanLook struct {
	modules.FitQuery
	end uint64 // the index of the log up to which it has looked
}

// answers reports whether a query asks for the same, up to the end of the look.
func (l *cleanLook) answers(q modules.FitQuery) bool {
	return l != nil && l.EntityType == q.EntityType && l.Digest == q.Digest && l.First == q.First && l.Within == q.Within && slices.Equal(l.WrittenNotBy, q.WrittenNotBy)
}

// cleanLooks are the last of each shard. They are safe for concurrent use.
type cleanLooks struct {
	mu      sync.Mutex
	byShard map[sharding.ShardID]*cleanLook
}

// last is nil where there was none.
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

// touched folds the entities of one type and shard by one module.
type touched struct {
	Options
	shard      sharding.ShardID
	entityType string
	before     []journal.Digest
	first      meta.Part // that others have served first; zero is all
	within     meta.Part // and that they serve by now
	after      uint64    // an index of the log: what is up to it was looked at
	end        uint64    // and what is up to this one is looked at now

	skipsTruncated bool // entities whose first events are gone are for Truncated

	fold    fold
	durable bool
	listed  map[string]bool // types of events; nil: any
	newest  journal.Digest  // the module of the last record that was folded
	known   bool            // there was one
}

// open finds the module.
func (t *touched) open(ctx context.Context, digest journal.Digest) error {
	served := t.Types.Served(t.entityType)
	if served == nil {
		return request.ErrModuleNotLoaded
	}
	m, err := t.Modules.ToRun(ctx, digest, "")
	if err != nil {
		return err
	}
	about, index, ok := m.Manifest().Type(t.entityType)
	if !ok {
		return &request.InvalidModuleError{Reason: fmt.Sprintf("the module does not serve entity type %q", t.entityType)}
	}
	t.fold.module, t.fold.digest, t.fold.index, t.fold.states = m, digest, uint32(index), about.States()
	t.fold.bound(served)
	if t.durable = about.Kind == manifest.DurableState; about.Events != nil && about.Kind == manifest.EventSourced {
		t.listed = make(map[string]bool, len(about.Events))
		for i := range about.Events {
			t.listed[about.Events[i].Type] = true
		}
	}
	return nil
}

// find returns the entities that may be touched: those with records behind the
// last one that a module wrote that served before. It is found from the end of
// the shard's order, in ever larger strides, so that it costs what was written
// since, and not what is stored.
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

// outside reports that a row is of an entity that is not of a part.
func outside(part meta.Part, row *eventlog.OrderRow) bool {
	return part != (meta.Part{}) && !part.Contains(sharding.EntityID{Type: string(row.Type), ID: string(row.ID)})
}

// beforeIn reports whether the first record of the type between two indexes, of
// an entity that others have served from their beginning on, is by a module
// that served before. One that was cut is passed over, and where nothing is
// known it is said not to be: more is looked at then.
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
			return nil // those before may have served it long after others began
		}
		id, at, known := sharding.EntityID{Type: t.entityType, ID: string(row.ID)}, row.At, false
		err := t.Machine.Read(ctx, t.shard, id, row.First, func(place journal.Position, r *journal.Record) error {
			if known = place == at; known {
				found = slices.Contains(t.before, r.Module)
			}
			return errDone
		})
		var cut *journal.CutError
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

// judge folds one entity, and notes what the module cannot do with it.
func (t *touched) judge(ctx context.Context, id sharding.EntityID, out *modules.Fit) error {
	used := t.fold.guest != nil
	at, ours, err := t.one(ctx, id, full)
	var unlisted *unlistedError
	if used && refuses(err) && !errors.As(err, &unlisted) {
		// Once more, without what the entities before have left in the instance.
		t.fold.close()
		at, ours, err = t.one(ctx, id, full)
	}
	if errors.Is(err, errCut) && t.skipsTruncated {
		return nil
	}
	if err == nil || !refuses(err) {
		if ours && err == nil {
			out.Entities++
		}
		return errors.Join(err, ctx.Err())
	}
	if ctx.Err() != nil {
		return ctx.Err() // a guest whose call was interrupted shows nothing
	}
	if !ours {
		return nil // it failed on what others have written before
	}
	out.Entities++
	if out.Failing++; len(out.Faults) < modules.MaxFitFaults {
		if at-1 <= eachEvents {
			// Once more, event by event: at which does it fail?
			t.fold.close()
			if first, _, again := t.one(ctx, id, single); refuses(again) {
				at, err = first, again
			}
		}
		out.Faults = append(out.Faults, modules.FitFault{EntityID: id.ID, At: at, EventType: t.eventType(ctx, id, at), Message: err.Error()})
	}
	return ctx.Err()
}

// unlistedError: the module does not list the type of an event.
type unlistedError struct{ name string }

func (e *unlistedError) Error() string {
	return fmt.Sprintf("the module does not list events of type %s", e.name)
}

// refuses reports that the module cannot do something.
func refuses(err error) bool {
	var unlisted *unlistedError
	return guestFails(err) || errors.As(err, &unlisted) || errors.Is(err, errCut)
}

// one folds an entity as a lane does, from the snapshot that the module would
// load. at is the event that it was at, and ours says whether the newest record
// is by a module that did not serve before.
func (t *touched) one(ctx context.Context, id sharding.EntityID, b batches) (at journal.Sequence, ours bool, err error) {
	t.fold.batches = b
	info, err := t.Machine.Info(t.shard, id)
	if err != nil || info.Deleted || info.Sequence == 0 {
		return 0, false, err
	}
	var from journal.Sequence
	w := walk{id: id, to: &t.fold, durable: t.durable, look: t.look}
	t.known = false
	if !t.durable {
		from, err = t.fold.begin(ctx, t.Machine, t.shard, id, 0)
		w.at = from
	}
	if err == nil {
		err = w.read(ctx, t.Machine, t.shard, from, info.Sequence)
	}
	if err == nil && t.known {
		return w.at, t.others(t.newest), nil
	}
	ours, unread := t.ours(ctx, id, info.Sequence) // the newest record was not come to
	return w.at, ours, cmp.Or(unread, err)
}

// look refuses an event whose type the module does not list, unless one of
// those that served before has written it.
func (t *touched) look(r *journal.Record, i int) error {
	if t.newest, t.known = r.Module, true; t.listed != nil && !t.listed[r.Events[i].Type] && t.others(r.Module) {
		return &unlistedError{r.Events[i].Type}
	}
	return nil
}

// others reports that a module did not serve before.
func (t *touched) others(by journal.Digest) bool { return !slices.Contains(t.before, by) }

// ours reports whether the record of the newest event is by a module that did
// not serve before.
func (t *touched) ours(ctx context.Context, id sharding.EntityID, newest journal.Sequence) (ours bool, err error) {
	err = t.Machine.Read(ctx, t.shard, id, newest, func(_ journal.Position, r *journal.Record) error {
		ours = t.others(r.Module)
		return ctx.Err()
	})
	return ours, err
}

// eventType is that of the event of a sequence; empty where it is not there.
func (t *touched) eventType(ctx context.Context, id sharding.EntityID, at journal.Sequence) string {
	v := verifier{Options: t.Options, shard: t.shard}
	return v.eventType(ctx, id, at)
}
