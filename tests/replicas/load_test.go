package replicas_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// registry is a metadata state machine. Every command is a key and a value.
type registry struct {
	pairs map[string]string
	index uint64
}

func newRegistry() *registry { return &registry{pairs: map[string]string{}} }

func (r *registry) Apply(index uint64, body []byte) ([]eventlog.KV, []byte, error) {
	r.index = index
	k, v := string(body[:8]), string(body[8:])
	r.pairs[k] = v
	return []eventlog.KV{{Key: []byte(k), Value: []byte(v)}}, nil, nil
}

func (r *registry) Replace(index uint64, restore func(put func(key, value []byte) error) error) error {
	next := newRegistry()
	err := restore(func(key, value []byte) error {
		next.pairs[string(key)] = string(value)
		return nil
	})
	if err != nil {
		return err
	}
	r.pairs, r.index = next.pairs, index
	return nil
}

// load writes to shards of a world, one entry at a time, and records the
// acknowledged entries.
type load struct {
	w     *world
	n     int
	acked map[sharding.ShardID]map[string]journal.Sequence
}

func newLoad(w *world) *load {
	return &load{w: w, acked: map[sharding.ShardID]map[string]journal.Sequence{}}
}

func entity(id string) sharding.EntityID { return sharding.EntityID{Type: "thing", ID: id} }

// entry makes an entry that continues the state of the node's machine.
func (l *load) entry(n *node, s sharding.ShardID, term sharding.Term, size int) (data []byte, ids []string) {
	l.n++
	if s == sharding.MetaShard {
		data = journal.AppendEntryHeader(nil, journal.EntryMeta, term, uint64(l.n))
		return fmt.Appendf(data, "key%05d%0*d", l.n%40, size, l.n), nil
	}
	if l.n%7 == 3 {
		e := entity(fmt.Sprint("e", l.w.rng.IntN(9)))
		if seq, hash, ok, err := n.machine.Head(s, e); err == nil && ok && seq > 0 {
			data = journal.AppendEntryHeader(nil, journal.EntrySnapshot, term, uint64(l.n))
			return journal.AppendSnapshot(data, &journal.Snapshot{Entity: e, Sequence: seq, Hash: hash, Keep: 2, State: fmt.Append(nil, "state ", l.n)}), nil
		}
	}
	data = journal.AppendEntryHeader(nil, journal.EntryRecords, term, uint64(l.n))
	for _, i := range l.w.rng.Perm(9)[:1+l.w.rng.IntN(3)] {
		id := fmt.Sprint("e", i)
		seq, hash, _, err := n.machine.Head(s, entity(id))
		if err != nil {
			l.w.t.Fatal(err)
		}
		r := journal.Record{
			Entity: entity(id), Term: term, RecordedAt: int64(l.n), Expected: seq, Prev: hash,
			CommandID: journal.CommandID(fmt.Sprint("c", l.n)), Reply: []byte("ok"),
			Events: []journal.Event{{Type: "happened", Payload: make([]byte, size), Tags: []string{"t"}}},
		}
		data = journal.AppendRecord(data, &r)
		ids = append(ids, id)
	}
	return data, ids
}

// write writes entries to a shard, one at a time.
func (l *load) write(s sharding.ShardID, entries, size int) {
	l.w.t.Helper()
	for range entries {
		l.writeOne(s, size)
	}
}

func (l *load) writeOne(s sharding.ShardID, size int) {
	l.w.t.Helper()
	var want uint64
	var ids []string
	var at *node
	var term sharding.Term
	l.w.until("a write", func() bool {
		if at != nil && at.up && at.leads[s] == term {
			index, _ := at.machine.Applied(s)
			if index < want {
				return false
			}
			if l.acked[s] == nil {
				l.acked[s] = map[string]journal.Sequence{}
			}
			for _, id := range ids {
				seq, _, _, err := at.machine.Head(s, entity(id))
				if err != nil {
					l.w.t.Fatal(err)
				}
				l.acked[s][id] = max(seq, l.acked[s][id])
			}
			return true
		}
		at, term = l.w.leader(s)
		before, err := at.driver.Core().Status(s)
		if err != nil {
			l.w.t.Fatal(err)
		}
		if index, _ := at.machine.Applied(s); index != before.Last {
			at = nil
			return false
		}
		var data []byte
		data, ids = l.entry(at, s, term, size)
		want = before.Last + 1
		if err := at.driver.Core().Propose(s, term, uint64(l.n), data); err != nil {
			l.w.t.Fatal(err)
		}
		return false
	})
}

// state returns everything about a shard on a node that must be equal on two
// replicas, as text.
func state(t *testing.T, n *node, s sharding.ShardID) (out []string, err error) {
	t.Helper()
	index, term := n.machine.Applied(s)
	out = append(out, fmt.Sprintf("applied %d term %d clock %d entities %d", index, term, n.machine.Clock(s), n.machine.Entities(s)))
	if n.machine.IsInstalling(s) {
		return nil, eventlog.ErrInstalling
	}
	if s == sharding.MetaShard {
		for _, k := range slices.Sorted(maps.Keys(n.meta.pairs)) {
			out = append(out, k+"="+n.meta.pairs[k])
		}
		return out, nil
	}
	infos, err := n.machine.List(s, "thing", "", "", 1000)
	if err != nil {
		return nil, err
	}
	for _, i := range infos {
		out = append(out, fmt.Sprintf("%v %+v", i.Entity, i.Head))
		err := n.machine.Read(context.Background(), s, i.Entity, 0, func(at journal.Position, r *journal.Record) error {
			out = append(out, fmt.Sprintf("%v %x", at, journal.AppendRecord(nil, r)))
			return nil
		})
		if err != nil {
			return nil, err
		}
		snap, err := n.machine.Snapshot(context.Background(), s, i.Entity, journal.SnapshotsBy(journal.Digest{}), 0)
		if err != nil {
			return nil, err
		}
		if snap != nil {
			out = append(out, fmt.Sprintf("snapshot %x", journal.AppendSnapshot(nil, snap)))
		}
	}
	_, err = n.machine.ReadOrder(context.Background(), s, 0, func(row *store.OrderRow) error {
		out = append(out, fmt.Sprintf("%v %s %s %d %d", row.At, row.Type, row.ID, row.First, row.Events))
		return nil
	})
	return out, err
}

// agree runs steps until the nodes have the same state of a shard. It checks
// that state against the acknowledged entries, and compares the stores byte by
// byte.
func (l *load) agree(s sharding.ShardID, nodes ...int) {
	t := l.w.t
	t.Helper()
	var states [][]string
	l.w.until(fmt.Sprintf("agreement of %v on shard %d", nodes, s), func() bool {
		states = nil
		for _, i := range nodes {
			n := l.w.nodes[i]
			if !n.up {
				n.restart()
			}
			if len(states) > 0 {
				a, _ := l.w.nodes[nodes[0]].machine.Applied(s)
				if b, _ := n.machine.Applied(s); a != b {
					return false
				}
			}
			st, err := state(t, n, s)
			if errors.Is(err, eventlog.ErrInstalling) {
				return false
			}
			if err != nil {
				t.Fatalf("node %d: %v", i, err)
			}
			states = append(states, st)
		}
		return true
	})
	for i, st := range states[1:] {
		if !slices.Equal(st, states[0]) {
			for j := range min(len(st), len(states[0])) {
				if st[j] != states[0][j] {
					t.Errorf("line %d:\n%.300s\n%.300s", j, states[0][j], st[j])
					break
				}
			}
			t.Fatalf("nodes %d and %d differ in shard %d: %d and %d lines", nodes[0], nodes[i+1], s, len(states[0]), len(st))
		}
	}
	for id, seq := range l.acked[s] {
		if have, _, _, err := l.w.nodes[nodes[0]].machine.Head(s, entity(id)); err != nil || have < seq {
			t.Fatalf("shard %d: %s is at %d, %d was acknowledged: %v", s, id, have, seq, err)
		}
	}
	for _, i := range nodes {
		l.verify(l.w.nodes[i])
	}
}

// verify checks a node's store.
func (l *load) verify(n *node) {
	l.w.t.Helper()
	n.flush()
	for n.machine.HasWork() {
		n.told(n.machine.Work().Verdicts)
		n.flush()
	}
	r, err := n.store.Verify(context.Background(), store.Latest)
	if err != nil || r.Err() != nil {
		l.w.t.Fatalf("node %d: %v, %v", n.id, err, r.Err())
	}
	if r.Leftovers > 0 {
		l.w.t.Fatalf("node %d: %d pairs of generations that are over", n.id, r.Leftovers)
	}
	seen := map[sharding.ShardID]int{}
	for _, g := range r.Generations {
		if seen[g.Shard]++; seen[g.Shard] > 1 {
			l.w.t.Fatalf("node %d: two generations of shard %d: %+v", n.id, g.Shard, r.Generations)
		}
	}
}

// settle makes all entries that the node has applied durable in tables, by
// filling the memtables with entries of a separate shard.
func (l *load) settle(n *node) {
	l.w.t.Helper()
	s := fillerShard(n)
	before := n.store.Watermark()
	n.flush()
	target := n.store.MaxVersion()
	l.w.until("a table", func() bool {
		if n.store.Watermark() >= target && n.store.Watermark() > before {
			return true
		}
		l.writeOne(s, 20<<10)
		return false
	})
	for range 12 {
		l.w.step() // truncates the log
	}
}

func fillerShard(n *node) sharding.ShardID     { return sharding.ShardID(100 + n.id) }
func fillerReplica(n *node) sharding.ReplicaID { return sharding.ReplicaID(9000 + n.id) }

func readAll(r io.ReadCloser) ([]byte, error) {
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

// reads returns the errors of all ways to read a shard's state.
func reads(n *node, s sharding.ShardID) map[string]error {
	_, _, _, head := n.machine.Head(s, entity("e1"))
	_, list := n.machine.List(s, "thing", "", "", 10)
	_, inOrder := n.machine.ReadOrder(context.Background(), s, 0, func(*store.OrderRow) error { return nil })
	_, snap := n.machine.Snapshot(context.Background(), s, entity("e1"), journal.SnapshotsBy(journal.Digest{}), 0)
	return map[string]error{
		"head": head, "list": list, "order": inOrder, "snapshot": snap,
		"records": n.machine.Read(context.Background(), s, entity("e1"), 0, func(journal.Position, *journal.Record) error { return nil }),
	}
}

func order(n *node, s sharding.ShardID, after uint64, rows *[]string) (uint64, error) {
	return n.machine.ReadOrder(context.Background(), s, after, func(row *store.OrderRow) error {
		*rows = append(*rows, fmt.Sprintf("%v %s %s %d %d", row.At, row.Type, row.ID, row.First, row.Events))
		return nil
	})
}
