package replicas_test

import (
	"testing"

	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
)

func newCluster(t *testing.T, seed uint64) (*world, *load) {
	w := newWorld(t, 3, seed)
	w.start()
	for _, n := range w.nodes {
		w.create(fillerShard(n), fillerReplica(n))
	}
	return w, newLoad(w)
}

// cutOff truncates the log of the shard's leader, until a follower that does
// not have an entry that is applied now needs a snapshot.
func (l *load) cutOff(s sharding.ShardID) {
	l.w.t.Helper()
	at, _ := l.w.leader(s)
	index, _ := at.machine.Applied(s)
	l.w.until("a cut", func() bool {
		l.settle(at)
		st, err := at.driver.Core().Status(s)
		return err == nil && st.First >= index
	})
}

func TestFollowerBehindTruncationGetsSnapshot(t *testing.T) {
	for _, s := range []sharding.ShardID{0, 1} {
		w, l := newCluster(t, 1)
		w.create(s, 10, 11, 12)
		l.write(s, 20, 100)
		at, _ := w.leader(s)
		behind := (at.id + 1) % 3
		w.isolate(behind)
		l.write(s, 60, 100)
		l.cutOff(s)
		if w.sent > 0 {
			t.Fatal("a snapshot of nothing")
		}
		w.isolate()
		l.write(s, 5, 100)
		l.agree(s, 0, 1, 2)
		if w.sent == 0 {
			t.Fatal("it caught up without a snapshot")
		}
		l.write(s, 20, 100)
		l.agree(s, 0, 1, 2)
	}
}

func TestNewLearnerBeginsWithSnapshot(t *testing.T) {
	for _, s := range []sharding.ShardID{0, 1} {
		w, l := newCluster(t, 2)
		w.create(s, 10)
		l.write(s, 40, 200)
		l.cutOff(s)
		w.join(s, 21, 10)
		w.join(s, 22, 10)
		w.change(s, raftgroup.Change{AddLearners: []sharding.ReplicaID{21, 22}}, func(st raftgroup.Status) bool { return len(st.Learners) == 2 })
		l.write(s, 3, 100)
		l.agree(s, 0, 1, 2)
		w.change(s, raftgroup.Change{AddVoters: []sharding.ReplicaID{21, 22}}, func(st raftgroup.Status) bool {
			return len(st.Voters) == 3 && len(st.Outgoing) == 0
		})
		l.write(s, 10, 100)
		for i := range 3 { // each node in turn crashes while the others serve
			w.nodes[i].crash()
			l.write(s, 5, 100)
			w.nodes[i].restart()
			l.agree(s, 0, 1, 2)
		}
		if w.sent < 2 {
			t.Fatalf("%d snapshots", w.sent)
		}
	}
}
