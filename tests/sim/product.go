package sim

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// product is the product's state machine, which runs in parallel to the model.
// It gets the same entries, makes the same batches durable, and must return the
// same results, also after recovery. Its store is Badger in a real directory.
// Badger's goroutines decide when tables are written, so a run with this store
// is not exactly repeatable.
//
// If entities send messages, its store is in memory and the seed determines
// everything.
type product struct {
	store   *store.Store // nil if it uses the node's memStore
	machine *eventlog.Machine
}

// UseStore makes the nodes of a plain world also run the product's state
// machine, with stores below dir. Snapshots with real stores are tested in
// tests/replicas.
func (w *World) UseStore(dir string) { w.dir = dir }

// openProduct opens the product's machine at the durable index that the log
// recorded, and checks that its state matches the model.
func (n *node) openProduct(rec *recovery.Recovered) (t *product, err error) {
	t = &product{}
	if n.w.messages != nil {
		t.machine, err = eventlog.OpenOn(n.store, rec.Watermark, eventlog.Options{
			MaxEntityRows: 4, BlockBytes: 500, Generations: rec.Generations(n.disk, "snapshots"), Stopped: n.stoppedByLie,
		})
		if err != nil {
			return nil, err
		}
	} else {
		dir := filepath.Join(n.w.dir, strconv.Itoa(n.id))
		if t.store, err = store.Open(dir, store.Options{Watermark: rec.Watermark, MemTableBytes: 1 << 20}); err != nil {
			return nil, err
		}
		if t.machine, err = eventlog.Open(t.store, rec.Watermark, eventlog.Options{MaxEntityRows: 4}); err != nil {
			return t, err
		}
	}
	for _, s := range n.w.shards {
		if index, _ := t.machine.Applied(s); index != n.machine.shards[s].index {
			return t, fmt.Errorf("shard %d: as of watermark %d the store is at %d and should be at %d", s, rec.Watermark, index, n.machine.shards[s].index)
		}
	}
	last := map[sharding.ShardID]uint64{}
	for _, g := range rec.Groups {
		last[g.Shard] = g.LastIndex
	}
	return t, t.machine.SetRecoveryTargets(last)
}

func (t *product) close(w *World) {
	if t == nil || t.store == nil {
		return
	}
	if err := t.store.Close(); err != nil {
		w.fail("close store: %v", err)
	}
}

// apply passes an entry that the model has applied to the product, and compares
// the results.
func (t *product) apply(n *node, shard sharding.ShardID, c journal.Committed, model error) {
	for _, v := range t.machine.Apply(shard, []journal.Committed{c}) {
		if errors.Is(v.Err, eventlog.ErrStopped) && (n.store.lied[shard] || n.store.hid[shard]) {
			continue
		}
		if v.Index != c.Index || v.Term != c.Term || v.NoOp != (len(c.Data) == 0) || (v.Err == nil) != (model == nil) {
			n.w.fail("I5: node %d shard %d entry %d: verdict %+v, expected %v", n.id, shard, c.Index, v, model)
		}
		if bound := n.machine.shards[shard].bound; v.Revision != bound {
			n.w.fail("I5: node %d shard %d entry %d: binding revision %d, expected %d", n.id, shard, c.Index, v.Revision, bound)
		}
		if v.Messages && n.pump != nil {
			n.events = append(n.events, func() { n.pump.NotifySent(shard) })
		}
	}
}

// flush writes a batch and returns its version. It returns false if there is
// nothing to write.
func (t *product) flush(n *node) (uint64, bool) {
	if !t.machine.HasPending() {
		return 0, false
	}
	b := t.machine.TakeBatch()
	var err error
	if t.store != nil {
		err = b.Write(t.store)
	} else {
		err = b.WriteTo(n.store)
		n.store.prune()
	}
	if err != nil {
		n.w.fail("node %d: write batch: %v", n.id, err)
		return 0, false
	}
	t.machine.MarkFlushed(b)
	return b.Version, true
}

// durable returns the version that the product reports as durable, and checks
// it against the written batches.
func (t *product) durable(m *machine, dst map[sharding.ShardID]uint64) uint64 {
	w := t.machine.Durable(dst)
	for _, s := range m.n.w.shards {
		if have := m.appliedAt(w, s, m.shards[s].generation); m.shards[s].generation == m.generations[s] && dst[s] > have {
			m.n.w.fail("node %d shard %d: index %d is called durable as of version %d, which has %d", m.n.id, s, dst[s], w, have)
		}
		if m.n.w.joining[s] && !m.n.w.profile.snapshots {
			delete(dst, s)
		}
	}
	return w
}

// work lets the product's machine install snapshots. When it has installed a
// snapshot, the model follows.
func (m *machine) work() {
	if m.n.w.messages == nil || m.product == nil || m.n.w.rng.IntN(3) == 0 {
		return
	}
	real := m.product.machine
	for range 2 {
		if !real.HasWork() {
			return
		}
		step := real.Work()
		if err := real.Err(); err != nil {
			m.n.check(err)
			return
		}
		if in := step.Installed; in != nil {
			m.n.w.note("installed %d %d %d", m.n.id, in.Shard, in.Index)
			m.replay(in.Shard, in.Index)
		}
		if len(step.Verdicts) > 0 {
			m.n.w.fail("node %d: %d verdicts of entries that were not applied", m.n.id, len(step.Verdicts))
		}
	}
}

// verify compares the sequence and hash of every entity.
func (t *product) verify(n *node, shard sharding.ShardID, name string, e *entity) {
	sequence, hash, _, err := t.machine.Head(shard, sharding.EntityID{Type: "chain", ID: name})
	if err != nil || sequence != e.sequence || hash != e.hash {
		n.w.fail("I5: node %d %s: the store has %d %v, the model %d %v: %v", n.id, name, sequence, hash, e.sequence, e.hash, err)
	}
}
