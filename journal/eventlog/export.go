package eventlog

import (
	"context"
	"fmt"

	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// StateIndex returns the index up to which the store holds the shard's current
// generation. It is the index that Pin would export, or 0 if Pin would fail.
func (r *Reader) StateIndex(id sharding.ShardID) (index uint64, term sharding.Term) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil && sh.stopped == nil && sh.installing == nil {
		return sh.flushed.Index, sh.flushed.Term
	}
	return 0, 0
}

// Pin returns the state of the shard in the store. It does no I/O.
func (r *Reader) Pin(id sharding.ShardID) (*PinnedState, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return pinShard(r, id, newPinnedState)
}

// Export returns the state of the shard in the store, which may lag behind the
// applied index. It does no I/O.
func (r *Reader) Export(id sharding.ShardID) (*ShardExport, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return pinShard(r, id, newShardExport)
}

// pinShard creates an export from a shard's state in the store. The lock must
// be held.
func pinShard[T any](r *Reader, id sharding.ShardID, of func(*rows.Known, *store.Applied, kv.View) *T) (*T, error) {
	sh := r.shards[id]
	if sh == nil || sh.flushed.Index == 0 {
		return nil, fmt.Errorf("export shard %d: the store has no data for it", id)
	}
	if err := sh.readError(); err != nil {
		return nil, fmt.Errorf("export shard %d: %w", id, err)
	}
	view, err := r.view()
	if err != nil {
		return nil, fmt.Errorf("export shard %d: %w", id, err)
	}
	return of(sh.rows, &sh.flushed, view), nil
}

// Audit checks the rows of a shard in the store against their checksums. It
// detects rows that a compaction has dropped even if they are never read. Audit
// calls rest after every auditRows rows; if rest returns an error, the audit
// ends. Old versions stay in the store until the audit ends. If rows are
// missing or wrong, the shard stops on this node and the error wraps
// journal.ErrDamaged.
func (r *Reader) Audit(ctx context.Context, id sharding.ShardID, rest func(context.Context) error) error {
	if index, _ := r.StateIndex(id); index == 0 {
		return nil // the store has no data of the shard, or the shard cannot be read
	}
	e, err := r.Pin(id)
	if err != nil {
		return err
	}
	defer e.Close()
	return e.audit(ctx, rest)
}

// Shards returns the shards that have any state, unsorted.
func (r *Reader) Shards() []sharding.ShardID {
	r.mu.RLock()
	defer r.mu.RUnlock()
	ids := make([]sharding.ShardID, 0, len(r.shards))
	for id := range r.shards {
		ids = append(ids, id)
	}
	return ids
}
