package eventlog

import (
	"context"
	"fmt"

	"github.com/hostd/hostd/journal/eventlog/export"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Cut is what a shard holds as of one index of its log, to be exported.
type Cut = export.Cut

// StateIndex returns how far the store holds the shard's present generation:
// what Pin would export, 0 when it would not.
func (r *Reader) StateIndex(id sharding.ShardID) (index uint64, term sharding.Term) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil && sh.stopped == nil && sh.installing == nil {
		return sh.flushed.Index, sh.flushed.Term
	}
	return 0, 0
}

// Pin returns the shard's state as the store has it now. It does no I/O.
func (r *Reader) Pin(id sharding.ShardID) (*export.State, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return pinned(r, id, export.New)
}

// Cut returns the shard's state as the store has it now, which is behind what
// is applied by what Held says. It does no I/O.
func (r *Reader) Cut(id sharding.ShardID) (*Cut, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return pinned(r, id, export.NewCut)
}

// pinned makes something of a shard as the store has it. The caller holds the
// lock.
func pinned[T any](r *Reader, id sharding.ShardID, of func(*rows.Known, *store.Applied, kv.View) *T) (*T, error) {
	sh := r.shards[id]
	if sh == nil || sh.flushed.Index == 0 {
		return nil, fmt.Errorf("export shard %d: nothing of it is in the store", id)
	}
	if err := sh.unreadable(); err != nil {
		return nil, fmt.Errorf("export shard %d: %w", id, err)
	}
	view, err := r.view()
	if err != nil {
		return nil, fmt.Errorf("export shard %d: %w", id, err)
	}
	return of(sh.rows, &sh.flushed, view), nil
}

// Audit compares the rows of a shard with the sums that it has to have, as the
// store has it now: what a merge has dropped shows although nobody asks for it.
// rest is called now and then, and ends the audit by an error. It holds old
// versions in the store meanwhile. A shard whose rows are not all there stops
// on this node, and the error is journal.ErrDamaged.
func (r *Reader) Audit(ctx context.Context, id sharding.ShardID, rest func(context.Context) error) error {
	if index, _ := r.StateIndex(id); index == 0 {
		return nil // nothing of it is in the store, or nothing is read any more
	}
	e, err := r.Pin(id)
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Audit(ctx, rest)
}

// Shards are those of which there is any state, in no order.
func (r *Reader) Shards() []sharding.ShardID {
	r.mu.RLock()
	defer r.mu.RUnlock()
	ids := make([]sharding.ShardID, 0, len(r.shards))
	for id := range r.shards {
		ids = append(ids, id)
	}
	return ids
}
