package meta_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

func TestChangeReplicas(t *testing.T) {
	four := func(t *testing.T) *meta.State {
		s := three(t)
		run(t, s, meta.Join(node("n4", "d", 1)), meta.SetStatus("n4", 0, meta.StatusUp), // 7
			meta.Join(node("p", "p", 1, meta.RoleProxy)), meta.SetStatus("p", 0, meta.StatusUp)) // 8
		return s
	}
	swap := meta.ChangeReplicas(meta.Change{Shard: 1, Promote: []sharding.ReplicaID{9}, Retire: []sharding.ReplicaID{6}})
	tests := []struct {
		name  string
		setup [][]byte
		body  []byte
		err   error
		want  string
	}{
		{"add", nil, meta.AddReplica(1, "n4"), nil, "4@n1:voter 5@n2:voter 6@n3:voter 9@n4:learner"},
		{"add again", [][]byte{meta.AddReplica(1, "n4")}, meta.AddReplica(1, "n4"), nil, "4@n1:voter 5@n2:voter 6@n3:voter 9@n4:learner"},
		{"add to a proxy", nil, meta.AddReplica(1, "p"), meta.ErrConflict, ""},
		{"add to a stranger", nil, meta.AddReplica(1, "n9"), meta.ErrUnknownNode, ""},
		{"add to one that joins", [][]byte{meta.Join(node("n5", "e", 1))}, meta.AddReplica(1, "n5"), meta.ErrConflict, ""},
		{"add to one that leaves", [][]byte{meta.SetStatus("n4", 0, meta.StatusLeaving)}, meta.AddReplica(1, "n4"), meta.ErrConflict, ""},
		{"add to one that is down", [][]byte{meta.SetStatus("n4", 0, meta.StatusDown)}, meta.AddReplica(1, "n4"), meta.ErrConflict, ""},
		{"add beside one that leaves", [][]byte{meta.Retire(1, 6)}, meta.AddReplica(1, "n3"), meta.ErrConflict, ""},
		{"add in the place of one that is forgotten", [][]byte{meta.Retire(1, 6), meta.Forget(1, 6)}, meta.AddReplica(1, "n3"), nil, "4@n1:voter 5@n2:voter 9@n3:learner"},
		{"swap", [][]byte{meta.AddReplica(1, "n4")}, swap, nil, "4@n1:voter 5@n2:voter 6@n3:leaving 9@n4:voter"},
		{"swap again", [][]byte{meta.AddReplica(1, "n4"), swap}, swap, nil, "4@n1:voter 5@n2:voter 6@n3:leaving 9@n4:voter"},
		{"swap without the new one", nil, swap, meta.ErrConflict, ""},
		{"retire one of three", nil, meta.Retire(1, 6), nil, "4@n1:voter 5@n2:voter 6@n3:leaving"},
		{"retire two of three", nil, meta.Retire(1, 5, 6), meta.ErrConflict, ""},
		{"retire all", nil, meta.Retire(1, 4, 5, 6), meta.ErrConflict, ""},
		{"retire a learner", [][]byte{meta.AddReplica(1, "n4")}, meta.Retire(1, 9), nil, "4@n1:voter 5@n2:voter 6@n3:voter 9@n4:leaving"},
		{"retire a stranger", nil, meta.Retire(1, 77), nil, "4@n1:voter 5@n2:voter 6@n3:voter"},
		{"retire the live one beside the dead", [][]byte{meta.Down("n2")}, meta.Retire(1, 6), meta.ErrConflict, ""},
		{"retire the dead one", [][]byte{meta.Down("n2")}, meta.Retire(1, 5), nil, "4@n1:voter 5@n2:leaving 6@n3:voter"},
		{"forget a voter", nil, meta.Forget(1, 6), meta.ErrConflict, ""},
		{"forget a learner", [][]byte{meta.AddReplica(1, "n4")}, meta.Forget(1, 9), meta.ErrConflict, ""},
		{"forget one that leaves", [][]byte{meta.Retire(1, 6)}, meta.Forget(1, 6), nil, "4@n1:voter 5@n2:voter"},
		{"forget a stranger", nil, meta.Forget(1, 77), nil, "4@n1:voter 5@n2:voter 6@n3:voter"},
		{"promote one that leaves", [][]byte{meta.Retire(1, 6)}, meta.Promote(1, 6), meta.ErrConflict, ""},
		{"promote on a dead node", [][]byte{meta.AddReplica(1, "n4"), meta.Down("n4")}, meta.Promote(1, 9), meta.ErrConflict, ""},
		{"promote a proxy's", nil, meta.Promote(0, 8), meta.ErrConflict, ""},
		{"shrink to one", nil, meta.ChangeReplicas(meta.Change{Shard: 1, Demote: []sharding.ReplicaID{5}, Retire: []sharding.ReplicaID{6}}), nil, "4@n1:voter 5@n2:learner 6@n3:leaving"},
		{"demote all", nil, meta.ChangeReplicas(meta.Change{Shard: 1, Demote: []sharding.ReplicaID{4, 5, 6}}), meta.ErrConflict, ""},
		{"nothing", nil, meta.ChangeReplicas(meta.Change{Shard: 1}), meta.ErrInvalid, ""},
		{"a shard that is not placed", nil, meta.AddReplica(2, "n4"), meta.ErrUnknownShard, ""},
		{"place on a proxy", nil, meta.Place(meta.PlaceOn{Shard: 2, Nodes: []sharding.NodeID{"p"}}), meta.ErrConflict, ""},
		{"place on a dead node", [][]byte{meta.Down("n4")}, meta.Place(meta.PlaceOn{Shard: 2, Nodes: []sharding.NodeID{"n4"}}), meta.ErrConflict, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := four(t)
			run(t, s, tt.setup...)
			if tt.err != nil {
				refused(t, s, tt.err, tt.body)
				return
			}
			run(t, s, tt.body)
			wantShape(t, s, 1, tt.want)
		})
	}
}

func TestReplicasAreBounded(t *testing.T) {
	s := created(t, meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n1"}}))
	for i := range meta.MaxReplicas {
		name := fmt.Sprintf("x%d", i)
		run(t, s, meta.Join(node(name, "d", 1)), meta.SetStatus(sharding.NodeID(name), 0, meta.StatusUp))
		add := meta.AddReplica(1, sharding.NodeID(name))
		if i < meta.MaxReplicas-1 {
			run(t, s, add)
		} else {
			refused(t, s, meta.ErrInvalid, add)
		}
	}
}

func TestViewFindsReplicas(t *testing.T) {
	v := three(t).View()
	if n, ok := v.ReplicaNode(1, 5); !ok || n != "n2" {
		t.Errorf("replica 5 of shard 1 is on %q, %v", n, ok)
	}
	if _, ok := v.ReplicaNode(1, 2); ok {
		t.Error("shard 1 has another shard's replica")
	}
	h := v.HostedBy("n2")
	if len(h) != 2 || h[0].Shard != 0 || h[0].Replica.ID != 2 || h[1].Replica.ID != 5 || len(h[1].First) != 3 || len(h[0].First) != 1 {
		t.Errorf("n2 holds %+v", h)
	}
}

// After any commands in any order, the invariants hold and the dump loads to an
// equal state.
func TestRandomCommandsKeepTheInvariants(t *testing.T) {
	accepted := map[string]int{}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s, born := meta.New(), map[sharding.ReplicaID]sharding.ShardID{}
		for i := range uint64(400) {
			kind, body := randomClusterCommand(rng, s.View())
			before := s.View()
			_, result, _ := s.Apply(i+1, body)
			if _, err := meta.DecodeResult(result); err == nil {
				accepted[kind]++
			} else if errors.Is(err, meta.ErrCorrupt) {
				t.Fatal(err)
			}
			if fault := judge(before, s.View(), born); fault != "" {
				t.Fatalf("seed %d, command %d, %s: %s", seed, i, body, fault)
			}
			if rng.IntN(50) == 0 {
				loaded := meta.New()
				if err := loaded.Load(i+1, s.Dump()); err != nil {
					t.Fatal(err)
				}
				if got, want := dump(loaded.View()), dump(s.View()); got != want || loaded.View().Index() != i+1 {
					t.Fatalf("seed %d: loaded\n%s\nwas\n%s", seed, got, want)
				}
				s = loaded
			}
		}
	}
	for _, kind := range []string{"join", "status", "remove", "place", "add", "promote", "demote", "retire", "forget", "swap"} {
		if accepted[kind] < 20 {
			t.Errorf("only %d commands of kind %s were accepted", accepted[kind], kind)
		}
	}
}

func randomClusterCommand(rng *rand.Rand, v *meta.View) (kind string, body []byte) {
	n := sharding.NodeID(fmt.Sprintf("n%d", 1+rng.IntN(5)))
	shard := sharding.ShardID(rng.IntN(4))
	p, _ := v.Placement(shard)
	some := func() (ids []sharding.ReplicaID) {
		for _, r := range p.Replicas {
			if rng.IntN(3) == 0 {
				ids = append(ids, r.ID)
			}
		}
		return ids
	}
	switch rng.IntN(15) {
	case 0:
		return "create", meta.CreateCluster(cluster, founder)
	case 1:
		var roles []string
		if n == "n5" {
			roles = []string{meta.RoleProxy}
		}
		return "join", meta.Join(node(string(n), fmt.Sprint("d", rng.IntN(8)/7), 1+v.Index()/50, roles...))
	case 2, 3:
		return "status", meta.SetStatus(n, 0, []meta.MemberStatus{meta.StatusUp, meta.StatusUp, meta.StatusUp, meta.StatusLeaving, meta.StatusDown}[rng.IntN(5)])
	case 4:
		return "remove", meta.RemoveMember(n)
	case 14:
		return "drain", meta.SetDraining(n, 0, rng.IntN(2) == 0)
	case 5:
		return "place", meta.Place(meta.PlaceOn{Shard: shard, Nodes: []sharding.NodeID{n}})
	case 6, 7, 8:
		return "add", meta.AddReplica(shard, n)
	case 9:
		return "promote", meta.Promote(shard, some()...)
	case 10:
		return "demote", meta.ChangeReplicas(meta.Change{Shard: shard, Demote: some()})
	case 11:
		return "retire", meta.Retire(shard, some()...)
	case 12:
		return "forget", meta.Forget(shard, p.IDs(meta.ReplicaLeaving)...)
	default:
		return "swap", meta.ChangeReplicas(meta.Change{Shard: shard, Promote: p.IDs(meta.ReplicaLearner), Retire: some()})
	}
}

// judge checks the invariants after each command.
func judge(before, v *meta.View, born map[sharding.ReplicaID]sharding.ShardID) string {
	for _, p := range v.Placements() {
		on, voters := map[sharding.NodeID]bool{}, 0
		for _, r := range p.Replicas {
			if shard, known := born[r.ID]; known && shard != p.Shard {
				return fmt.Sprintf("replica id %d was of shard %d", r.ID, shard)
			}
			if _, had := before.ReplicaNode(p.Shard, r.ID); born[r.ID] == p.Shard && !had {
				if _, known := born[r.ID]; known {
					return fmt.Sprintf("replica id %d of shard %d came back", r.ID, p.Shard)
				}
			}
			born[r.ID] = p.Shard
			if !r.Lost && on[r.Node] {
				return fmt.Sprintf("shard %d has two replicas on %s", p.Shard, r.Node)
			}
			on[r.Node] = on[r.Node] || !r.Lost
			if r.State == meta.ReplicaVoter {
				voters++
			}
			if m, ok := v.Member(r.Node); !ok || p.Shard != 0 && m.HasRole(meta.RoleProxy) {
				return fmt.Sprintf("replica %d of shard %d on %q, %+v", r.ID, p.Shard, r.Node, m)
			}
		}
		if voters == 0 {
			return fmt.Sprintf("shard %d has no voter", p.Shard)
		}
		if old, ok := before.Placement(p.Shard); ok && fmt.Sprint(old.First) != fmt.Sprint(p.First) {
			return fmt.Sprintf("the first voters of shard %d changed", p.Shard)
		}
	}
	return ""
}

func TestLoadIsAllOrNothing(t *testing.T) {
	s := three(t)
	want, pairs := dump(s.View()), s.Dump()
	bad := append(bytes.Clone(nil), pairs[0].Value...)
	bad[0] = 'x'
	other := append([]meta.KV{{Key: pairs[0].Key, Value: bad}}, pairs[1:]...)
	if err := s.Load(9, other); !errors.Is(err, meta.ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
	if dump(s.View()) != want {
		t.Fatal("a failed load changed the state")
	}
	empty := meta.New()
	if err := s.Load(9, empty.Dump()); err != nil || dump(s.View()) != dump(empty.View()) {
		t.Fatalf("load of nothing: %v\n%s", err, dump(s.View()))
	}
}
