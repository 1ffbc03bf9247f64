package coordinator_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

type id = sharding.ReplicaID

// remains returns the remains of a cluster of three nodes and two shards. The
// second shard is in the middle of replacing replica 7 by replica 9.
func remains() coordinator.Remains {
	one := coordinator.ReplicaRemains{Shard: 1, Term: 3, Applied: 10, Voters: []id{4, 5, 6}, First: []id{4}}
	two := coordinator.ReplicaRemains{Shard: 2, Term: 2, Applied: 20, Voters: []id{8, 9}, Outgoing: []id{7, 8}, First: []id{7, 8}}
	rec := func(r coordinator.ReplicaRemains, replica id) coordinator.ReplicaRemains {
		r.Replica = replica
		return r
	}
	node := func(name string, replicas ...coordinator.ReplicaRemains) coordinator.NodeRemains {
		return coordinator.NodeRemains{Cluster: "c", Shards: 2, Replicas: replicas,
			Member: meta.Member{Node: sharding.NodeID(name), Address: name, Disk: name, Incarnation: 1, Status: meta.StatusDown, Downed: true}}
	}
	return coordinator.Remains{
		Cluster: meta.Cluster{ID: "c", Format: 1, Shards: 2}, BootstrapNode: "n1",
		Nodes: []coordinator.NodeRemains{
			node("n1", rec(one, 4), rec(two, 7)), node("n2", rec(one, 5), rec(two, 8)), node("n3", rec(one, 6), rec(two, 9)),
		},
	}
}

func TestRebuild(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*coordinator.Remains)
		err     error
		one, to string
	}{
		{"whole", func(*coordinator.Remains) {}, nil, "4@n1:voter 5@n2:voter 6@n3:voter", "7@n1:leaving 8@n2:voter 9@n3:voter"},
		{"a node of three is missing", func(r *coordinator.Remains) {
			r.Nodes = r.Nodes[:2]
			r.Nodes[0].Replicas, r.Nodes[1].Replicas = r.Nodes[0].Replicas[:1], r.Nodes[1].Replicas[:1]
			r.Cluster.Shards, r.Nodes[0].Shards, r.Nodes[1].Shards = 1, 1, 1
		}, nil, "4@n1:voter 5@n2:voter", ""},
		{"a replica that its group left behind", func(r *coordinator.Remains) {
			r.Nodes[2].Replicas[0].Voters, r.Nodes[2].Replicas[0].Applied = []id{4, 5}, 11
		}, nil, "4@n1:voter 5@n2:voter", "7@n1:leaving 8@n2:voter 9@n3:voter"},
		{"half of a joint membership is missing", func(r *coordinator.Remains) { r.Nodes[0].Replicas = r.Nodes[0].Replicas[:1] }, coordinator.ErrIncomplete, "", ""},
		{"two of three are missing", func(r *coordinator.Remains) {
			r.Nodes[1].Replicas, r.Nodes[2].Replicas = r.Nodes[1].Replicas[1:], r.Nodes[2].Replicas[1:]
		}, coordinator.ErrIncomplete, "", ""},
		{"a shard is missing", func(r *coordinator.Remains) {
			for i := range r.Nodes {
				r.Nodes[i].Replicas = r.Nodes[i].Replicas[:1]
			}
		}, coordinator.ErrIncomplete, "", ""},
		{"the founder is missing", func(r *coordinator.Remains) { r.BootstrapNode = "n9" }, coordinator.ErrIncomplete, "", ""},
		{"first voters are not known", func(r *coordinator.Remains) {
			for i := range r.Nodes {
				r.Nodes[i].Replicas[0].First = nil
			}
		}, coordinator.ErrIncomplete, "", ""},
		{"another cluster", func(r *coordinator.Remains) { r.Nodes[1].Cluster = "d" }, coordinator.ErrInconsistent, "", ""},
		{"another number of shards", func(r *coordinator.Remains) { r.Nodes[1].Shards = 3 }, coordinator.ErrInconsistent, "", ""},
		{"a node twice", func(r *coordinator.Remains) { r.Nodes[1].Member.Node = "n1" }, coordinator.ErrInconsistent, "", ""},
		{"a replica on two nodes", func(r *coordinator.Remains) { r.Nodes[1].Replicas[0].Replica = 4 }, coordinator.ErrInconsistent, "", ""},
		{"a replica of two shards", func(r *coordinator.Remains) { r.Nodes[1].Replicas[1].Voters = []id{4, 9} }, coordinator.ErrInconsistent, "", ""},
		{"different members as of one index", func(r *coordinator.Remains) { r.Nodes[1].Replicas[0].Voters = []id{4, 5} }, coordinator.ErrInconsistent, "", ""},
		{"different first voters", func(r *coordinator.Remains) { r.Nodes[1].Replicas[0].First = []id{5} }, coordinator.ErrInconsistent, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := remains()
			tt.change(&r)
			s, err := coordinator.Rebuild(r)
			if !errors.Is(err, tt.err) {
				t.Fatalf("got error %v, want %v", err, tt.err)
			}
			if err != nil {
				return
			}
			if got := shape(s.View(), 1); got != tt.one {
				t.Errorf("shard 1 is %s, want %s", got, tt.one)
			}
			if got := shape(s.View(), 2); got != tt.to {
				t.Errorf("shard 2 is %s, want %s", got, tt.to)
			}
		})
	}
}

// Rebuilt metadata can be used like any other metadata: it loads, the other
// nodes can join, and replica ids are not reused.
func TestRebuiltMetadataWorks(t *testing.T) {
	r := remains()
	old := meta.New()
	apply(t, old, meta.CreateCluster(r.Cluster, meta.Member{Node: "n1", Address: "n1", Status: meta.StatusUp}),
		meta.Join(meta.Member{Node: "gone", Address: "g", Disk: "g", Incarnation: 1}), meta.PutSetting("k", []byte("v")))
	r.Metadata = old.Dump()
	r.Nodes[1].MaxRemovedReplica, r.Nodes[2].Revision = 3<<20, 7
	s, err := coordinator.Rebuild(r)
	if err != nil {
		t.Fatal(err)
	}
	loaded := meta.New()
	if err := loaded.Load(0, s.Dump()); err != nil {
		t.Fatal(err)
	}
	v := loaded.View()
	if set, ok := v.Setting("k"); !ok || string(set.Value) != "v" {
		t.Errorf("the setting is %+v", set)
	}
	gone, _ := v.Member("gone")
	up, _ := v.Member("n2")
	if gone.Status != meta.StatusDown || up.Status != meta.StatusUp || up.Downed {
		t.Errorf("members are %+v", v.Members())
	}
	first := v.HostedBy("n1")[0].Replica.ID
	if first <= 3<<20 {
		t.Errorf("the metadata shard's replica is %d", first)
	}
	if v.Revision() != 7 {
		t.Errorf("bindings go on from revision %d", v.Revision())
	}
	apply(t, loaded, meta.Join(meta.Member{Node: "n2", Address: "n2", Disk: "n2", Incarnation: 2}))
	if p, _ := loaded.View().Placement(0); len(p.Replicas) != 2 || p.Replicas[1].ID <= first || !slices.Equal(p.First, []id{first}) {
		t.Errorf("after a join the metadata shard is %+v", p)
	}
}

func apply(t *testing.T, s *meta.State, commands ...[]byte) {
	t.Helper()
	for _, c := range commands {
		_, result, _ := s.Apply(s.View().Index()+1, c)
		if _, err := meta.DecodeResult(result); err != nil {
			t.Fatalf("%s: %v", c, err)
		}
	}
}

func shape(v *meta.View, s sharding.ShardID) (out string) {
	p, _ := v.Placement(s)
	for i, r := range p.Replicas {
		if i > 0 {
			out += " "
		}
		out += replicaText(r)
	}
	return out
}

// Data directories are upgraded before the cluster version is raised.
func TestRebuiltMetadataKeepsClusterVersion(t *testing.T) {
	for _, tt := range []struct {
		directories [3]sharding.ClusterVersion
		want        sharding.ClusterVersion
	}{
		{[3]sharding.ClusterVersion{0, 0, 0}, 1}, {[3]sharding.ClusterVersion{2, 1, 2}, 1}, {[3]sharding.ClusterVersion{2, 2, 2}, 2},
	} {
		r := remains()
		for i := range r.Nodes {
			r.Nodes[i].ClusterVersion = tt.directories[i]
		}
		s, err := coordinator.Rebuild(r)
		if err != nil || s.ClusterVersion() != tt.want {
			t.Errorf("of directories of levels %v: level %d, %v", tt.directories, s.ClusterVersion(), err)
		}
	}
}
