package leaders

import (
	"errors"
	"testing"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/region"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// TestMayLead: where the replica here knows the leader it is that one alone,
// else whoever has a replica. The coordinator's word does not count.
func TestMayLead(t *testing.T) {
	state := meta.New()
	n := func(node sharding.NodeID) meta.Member {
		return meta.Member{Node: node, Address: string(node), Status: meta.StatusUp, Disk: "disk-" + string(node), Incarnation: 1}
	}
	for i, c := range [][]byte{
		meta.CreateCluster(meta.Cluster{ID: "c", Format: 1, Shards: 2}, n("n1")), meta.PutMember(n("n2")), meta.PutMember(n("n3")), meta.PutMember(n("n4")),
		meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n1", "n2", "n3"}}, meta.PlaceOn{Shard: 2, Nodes: []sharding.NodeID{"n2", "n3", "n4"}}),
	} {
		_, result, err := state.Apply(uint64(i+1), c)
		if err == nil {
			_, err = meta.DecodeResult(result)
		}
		if err != nil {
			t.Fatal(i, err)
		}
	}
	r, err := region.New(region.Options{Lanes: 1, Shards: 2, Lane: entity.Options{Journal: noJournal{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	stopped := sharding.NotStopped
	l := New("n1", r, func(sharding.ShardID) sharding.StopReason { return stopped })
	may := func(when string, shard sharding.ShardID, nodes string) {
		t.Helper()
		got := ""
		for _, node := range []sharding.NodeID{"n2", "n3", "n4"} {
			if l.MayLead(node, shard) {
				got += string(node)
			}
		}
		if got != nodes {
			t.Errorf("%s %q may lead shard %d, not %q", when, got, shard, nodes)
		}
	}
	may("before anything is known", 1, "")
	l.Learn(state.View(), 2)
	l.Tell([]sharding.NodeID{"", "n4", "n4"})
	may("with a replica here that knows no leader", 1, "n2n3")
	may("without a replica here", 2, "n2n3n4")
	placement, _ := state.View().Placement(1)
	at, _ := placement.On("n2")
	r.LeaderChanged(1, 7, at.ID, false)
	may("with a replica here that follows", 1, "n2")
	stopped = sharding.StopDamaged
	may("with a replica here that has stopped", 1, "n2n3")
	stopped = sharding.NotStopped
	at, _ = placement.On("n1")
	r.LeaderChanged(1, 8, at.ID, true)
	may("while this node leads", 1, "")
}

// noJournal is that of a lane that never proposes anything.
type noJournal struct{}

func (noJournal) Propose(sharding.ShardID, sharding.Term, uint64, []byte) error {
	return errors.New("nothing is proposed")
}
func (noJournal) ReadIndex(sharding.ShardID, uint64) error { return errors.New("nothing is read") }
func (noJournal) Busy() bool                               { return false }
