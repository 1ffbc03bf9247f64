package replicas_test

import (
	"errors"
	"testing"

	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

func remove(n *node, s sharding.ShardID, r sharding.ReplicaID) error {
	err, _ := n.driver.Remove([]raftgroup.ReplicaRef{{Shard: s, Replica: r}})
	return err
}

func TestRemoveAndCreateAgain(t *testing.T) {
	for _, s := range []sharding.ShardID{0, 1} {
		w, l := newCluster(t, 3)
		w.create(s, 10)
		n := w.nodes[0]
		l.write(s, 30, 300)
		if err := remove(n, s, 11); !errors.Is(err, raftgroup.ErrUnknownShard) {
			t.Fatalf("another replica: %v", err)
		}
		if err := remove(n, s, 10); err != nil {
			t.Fatal(err)
		}
		clear(l.acked[s])
		for range 2 {
			if err := remove(n, s, 10); err != nil {
				t.Fatalf("again: %v", err)
			}
			if _, err := n.driver.Core().Status(s); !errors.Is(err, raftgroup.ErrUnknownShard) {
				t.Fatalf("status of a removed replica: %v", err)
			}
			for _, r := range []sharding.ReplicaID{3, 10} {
				err, _ := n.driver.Create([]raftgroup.GroupConfig{{Shard: s, Replica: r, Voters: []sharding.ReplicaID{r}}})
				if !errors.Is(err, raftgroup.ErrReplicaRemoved) {
					t.Fatalf("replica %d created again: %v", r, err)
				}
			}
			if index, _ := n.machine.Applied(s); index != 0 || len(n.meta.pairs) != 0 {
				t.Fatalf("applied %d of nothing", index)
			}
			l.settle(n)
			l.verify(n)
			n.crash()
			n.restart()
		}
		w.create(s, 20) // another group in the same log
		l.write(s, 10, 100)
		l.settle(n)
		l.verify(n)
		if err := remove(n, s, 20); err != nil {
			t.Fatal(err)
		}
		clear(l.acked[s])
		w.create(s, 30)
		l.write(s, 5, 100)
		n.crash()
		n.restart()
		l.write(s, 5, 100)
		l.agree(s, 0)
		if st, err := n.driver.Core().Status(s); err != nil || st.Replica != 30 {
			t.Fatalf("%+v %v", st, err)
		}
	}
}

// TestPowerCutsAroundRemovals cuts the power at every operation of the disk
// during a generation, its end and the next generation. A removal and a
// creation that have completed must survive, and the shard must work
// afterwards.
func TestPowerCutsAroundRemovals(t *testing.T) {
	places := 0
	for at := 0; ; at += *every {
		w := newWorld(t, 1, uint64(at))
		w.start()
		n := w.nodes[0]
		w.create(fillerShard(n), fillerReplica(n))
		l := newLoad(w)
		w.create(1, 10)
		l.write(1, 8, 500)
		if at%2 == 0 {
			l.settle(n)
		}
		n.fs.CutAfter(at)
		err := remove(n, 1, 10)
		if err == nil {
			err, _ = n.driver.Create([]raftgroup.GroupConfig{{Shard: 1, Replica: 20, Voters: []sharding.ReplicaID{20}}})
		}
		removed := err == nil
		for i := 0; i < 30 && err == nil; i++ {
			if err = n.run(true); err == nil && n.leads[1] != 0 && n.ready[1] == n.leads[1] {
				data, _ := l.entry(n, 1, n.leads[1], 100)
				err = n.driver.Core().Propose(1, n.leads[1], 1, data)
			}
		}
		if err == nil {
			if at < 60 {
				t.Fatalf("only %d operations of the disk", at)
			}
			t.Logf("power cut at %d places", places)
			return
		}
		places++
		n.crash()
		n.restart()
		st, err := n.driver.Core().Status(1)
		switch {
		case errors.Is(err, raftgroup.ErrUnknownShard):
			if removed {
				t.Fatalf("cut at %d: the new replica is gone", at)
			}
			clear(l.acked[1])
			w.create(1, 30)
		case err != nil:
			t.Fatal(err)
		case st.Replica == 10 && removed:
			t.Fatalf("cut at %d: the removed replica is back", at)
		case st.Replica == 20:
			clear(l.acked[1])
		}
		l.write(1, 5, 100)
		l.agree(1, 0)
	}
}

// TestDropDuringBatches: a batch is taken before the drop and written after the
// drop. The rows that it writes must be deleted, too.
func TestDropDuringBatches(t *testing.T) {
	w, l := newCluster(t, 5)
	n := w.nodes[0]
	w.create(1, 10)
	l.write(1, 10, 100)
	n.lazy = true
	l.write(1, 10, 100)
	b := n.machine.TakeBatch()
	l.write(1, 10, 100) // entries that are applied, but in no batch
	if err := remove(n, 1, 10); err != nil {
		t.Fatal(err)
	}
	clear(l.acked[1])
	w.create(1, 20)
	l.write(1, 3, 100)
	if err := b.Write(n.store); err != nil {
		t.Fatal(err)
	}
	n.machine.MarkFlushed(b)
	n.lazy = false
	l.write(1, 3, 100)
	l.agree(1, 0)
	if u := n.machine.UnflushedBytes() + n.machine.Waiting(); u != 0 {
		t.Errorf("%d bytes are on their way for ever", u)
	}
	r, err := n.store.Verify(t.Context(), store.Latest)
	if err != nil || r.Entities > 9 {
		t.Fatalf("%d entities: %v", r.Entities, err)
	}
}
