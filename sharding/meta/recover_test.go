package meta_test

import (
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// A shard can continue with one replica only if the other replicas cannot form
// a majority.
func TestShardRecoversOnlyWithoutMajority(t *testing.T) {
	four := func(t *testing.T) *meta.State { // shard 1 has 4@n1 5@n2 6@n3
		s := three(t)
		run(t, s, meta.RaiseClusterVersion(2, speaker("n1", 0, 2), speaker("n2", 1, 2), speaker("n3", 1, 2)))
		run(t, s, meta.Join(speaking("n4", 1, 1, 2)), meta.SetStatus("n4", 0, meta.StatusUp))
		return s
	}
	lost := func(n string) []byte { m := speaking(n, 2, 1, 2); m.Disk = "fresh"; return meta.Join(m) }
	down := func(n sharding.NodeID) []byte { return meta.SetStatus(n, 0, meta.StatusDown) }
	for _, tt := range []struct {
		name    string
		setup   [][]byte
		shard   sharding.ShardID
		replica sharding.ReplicaID
		err     error
		want    string
	}{
		{"all are up", nil, 1, 4, meta.ErrConflict, ""},
		{"one is down", [][]byte{down("n2")}, 1, 4, meta.ErrConflict, ""},
		{"one disk is lost", [][]byte{lost("n2")}, 1, 4, meta.ErrConflict, ""},
		{"two are down", [][]byte{down("n2"), down("n3")}, 1, 4, nil, "4@n1:voter 5@n2:leaving 6@n3:leaving"},
		{"two disks are lost", [][]byte{lost("n2"), lost("n3")}, 1, 4, nil, "4@n1:voter 5@n2:leaving! 6@n3:leaving!"},
		{"a disk is lost and a node is down", [][]byte{lost("n2"), down("n3")}, 1, 4, nil, "4@n1:voter 5@n2:leaving! 6@n3:leaving"},
		{"its own node is down", [][]byte{down("n1"), down("n2")}, 1, 4, meta.ErrConflict, ""},
		{"its own node and all others are down", [][]byte{down("n1"), down("n2"), down("n3")}, 1, 4, nil, "4@n1:voter 5@n2:leaving 6@n3:leaving"},
		{"only a learner is left", [][]byte{meta.AddReplica(1, "n4"), down("n1"), down("n2"), down("n3")}, 1, 8, nil, "4@n1:leaving 5@n2:leaving 6@n3:leaving 8@n4:voter"},
		{"a learner beside a majority", [][]byte{meta.AddReplica(1, "n4"), down("n3")}, 1, 8, meta.ErrConflict, ""},
		{"it is alone already", [][]byte{meta.ChangeReplicas(meta.Change{Shard: 1, Demote: []sharding.ReplicaID{5}, Retire: []sharding.ReplicaID{6}}), meta.Retire(1, 5), meta.Forget(1, 5, 6)}, 1, 4, nil, "4@n1:voter"},
		{"a lost replica", [][]byte{lost("n2"), lost("n3")}, 1, 5, meta.ErrConflict, ""},
		{"one that was replaced", [][]byte{down("n2"), meta.AddReplica(1, "n4"), meta.ChangeReplicas(meta.Change{Shard: 1, Promote: []sharding.ReplicaID{8}, Retire: []sharding.ReplicaID{5}}), down("n3")}, 1, 5, meta.ErrConflict, ""},
		{"no replica of it", nil, 1, 77, meta.ErrConflict, ""},
		{"a shard that is not placed", nil, 2, 4, meta.ErrUnknownShard, ""},
		{"the metadata shard", nil, 0, 1, meta.ErrInvalid, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := four(t)
			run(t, s, tt.setup...)
			command := meta.RecoverShard(tt.shard, tt.replica)
			if tt.err != nil {
				refused(t, s, tt.err, command)
				return
			}
			run(t, s, command)
			wantShape(t, s, tt.shard, tt.want)
			if p := mustPlacement(t, s, tt.shard); p.Recovered != tt.replica {
				t.Errorf("the placement says that it went on with replica %d", p.Recovered)
			}
			// A node that comes back does not affect a repeated command.
			for _, n := range []string{"n2", "n3"} {
				if m, _ := s.View().Member(sharding.NodeID(n)); m.Status == meta.StatusDown {
					run(t, s, meta.Join(speaking(n, 5, 1, 2)))
				}
			}
			if run(t, s, command).Changed {
				t.Error("the same command again changed something")
			}
		})
	}
	refused(t, three(t), meta.ErrClusterVersion, meta.RecoverShard(1, 4))
}
