package meta_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

var update = flag.Bool("rewrite", false, "rewrite testdata/golden.txt from what the code does")

var (
	cluster = meta.Cluster{ID: "c1", Format: 1, Shards: 3, CreatedAt: 1_700_000_000_000_000_000}
	founder = meta.Member{Node: "n1", Address: "127.0.0.1:7070", Status: meta.StatusUp}
)

func digest(b byte) (d meta.Digest) {
	for i := range d {
		d[i] = b
	}
	return d
}

func module(b byte, types ...string) meta.Module {
	return meta.Module{Digest: digest(b), Size: int64(b) + 1, Name: "m", Version: "1.0", EntityTypes: types, UploadedAt: int64(b)}
}

// created returns a state with the cluster created and the commands applied,
// all of which must succeed.
func created(t *testing.T, commands ...[]byte) *meta.State {
	t.Helper()
	s := meta.New()
	for i, c := range append([][]byte{meta.CreateCluster(cluster, founder)}, commands...) {
		_, result, _ := s.Apply(uint64(i+1), c)
		if _, err := meta.DecodeResult(result); err != nil {
			t.Fatalf("command %d: %v", i, err)
		}
	}
	return s
}

func TestCommandResults(t *testing.T) {
	two := meta.Member{Node: "n2", Address: "127.0.0.1:7071", Status: meta.StatusUp}
	tests := []struct {
		name  string
		setup [][]byte
		body  []byte
		want  error
		res   meta.Result
	}{
		{"create again is accepted", nil, meta.CreateCluster(cluster, founder), nil, meta.Result{}},
		{"create another", nil, meta.CreateCluster(meta.Cluster{ID: "c2", Format: 1, Shards: 3}, founder), meta.ErrClusterExists, meta.Result{}},
		{"admit", nil, meta.PutMember(two), nil, meta.Result{Changed: true}},
		{"admit again", [][]byte{meta.PutMember(two)}, meta.PutMember(two), nil, meta.Result{}},
		{"member of a bad name", nil, meta.PutMember(meta.Member{Node: "n/2", Address: "a", Status: meta.StatusUp}), meta.ErrInvalid, meta.Result{}},
		{"member without an address", nil, meta.PutMember(meta.Member{Node: "n2", Status: meta.StatusUp}), meta.ErrInvalid, meta.Result{}},
		{"place", [][]byte{meta.PutMember(two)}, meta.Place(meta.PlaceOn{Shard: 2, Nodes: []sharding.NodeID{"n2", "n1"}}), nil, meta.Result{Changed: true,
			Placements: []meta.Placement{{Shard: 2, First: []sharding.ReplicaID{2, 3},
				Replicas: []meta.Replica{{ID: 2, Node: "n2", State: meta.ReplicaVoter}, {ID: 3, Node: "n1", State: meta.ReplicaVoter}}, Changed: 99}}}},
		{"place beyond the shards", nil, meta.Place(meta.PlaceOn{Shard: 4, Nodes: []sharding.NodeID{"n1"}}), meta.ErrUnknownShard, meta.Result{}},
		{"place on a stranger", nil, meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n9"}}), meta.ErrUnknownNode, meta.Result{}},
		{"place twice on one node", nil, meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n1", "n1"}}), meta.ErrInvalid, meta.Result{}},
		{"place on nothing", nil, meta.Place(meta.PlaceOn{Shard: 1}), meta.ErrInvalid, meta.Result{}},
		{"bind", [][]byte{meta.PutModule(module(1, "a", "b"))}, meta.Bind("b", digest(1), 7), nil, meta.Result{Changed: true, Revision: 1}},
		{"bind what is bound", [][]byte{meta.PutModule(module(1, "a")), meta.Bind("a", digest(1), 7)}, meta.Bind("a", digest(1), 8), nil, meta.Result{Revision: 1}},
		{"limit what is bound", [][]byte{meta.PutModule(module(1, "a")), meta.Bind("a", digest(1), 7)}, meta.BindLimited("a", digest(1), 8, meta.Limits{MaxEvents: 2}), nil, meta.Result{Changed: true, Revision: 2}},
		{"limit as before", [][]byte{meta.PutModule(module(1, "a")), meta.BindLimited("a", digest(1), 7, meta.Limits{MaxEvents: 2})}, meta.BindLimited("a", digest(1), 8, meta.Limits{MaxEvents: 2}), nil, meta.Result{Revision: 1}},
		{"bind what is limited", [][]byte{meta.PutModule(module(1, "a")), meta.BindLimited("a", digest(1), 7, meta.Limits{MaxEvents: 2})}, meta.Bind("a", digest(1), 8), nil, meta.Result{Revision: 1}},
		{"limit below nothing", [][]byte{meta.PutModule(module(1, "a"))}, meta.BindLimited("a", digest(1), 7, meta.Limits{EventBytes: -1}), meta.ErrInvalid, meta.Result{}},
		{"limit the rate below nothing", [][]byte{meta.PutModule(module(1, "a"))}, meta.BindLimited("a", digest(1), 7, meta.Limits{RatePerSecond: -1}), meta.ErrInvalid, meta.Result{}},
		{"limits are no step back", [][]byte{meta.PutModule(module(1, "a")), meta.Bind("a", digest(1), 7), meta.BindLimited("a", digest(1), 8, meta.Limits{QueryFuel: 1})}, meta.Rollback("a", 9), meta.ErrNoPrevious, meta.Result{}},
		{"bind an unknown module", nil, meta.Bind("a", digest(1), 7), meta.ErrUnknownModule, meta.Result{}},
		{"bind a type that the module lacks", [][]byte{meta.PutModule(module(1, "a"))}, meta.Bind("b", digest(1), 7), meta.ErrUnknownType, meta.Result{}},
		{"roll back nothing", nil, meta.Rollback("a", 1), meta.ErrUnknownType, meta.Result{}},
		{"roll back the first", [][]byte{meta.PutModule(module(1, "a")), meta.Bind("a", digest(1), 7)}, meta.Rollback("a", 9), meta.ErrNoPrevious, meta.Result{}},
		{"module of no type", nil, meta.PutModule(module(1)), meta.ErrInvalid, meta.Result{}},
		{"module of one type twice", nil, meta.PutModule(module(1, "a", "a")), meta.ErrInvalid, meta.Result{}},
		{"module of a bad type", nil, meta.PutModule(module(1, "A")), meta.ErrInvalid, meta.Result{}},
		{"setting", nil, meta.PutSetting("k", nil), nil, meta.Result{Changed: true, Revision: 1}},
		{"setting at the bound", nil, meta.PutSetting("k", make([]byte, meta.MaxSettingValueBytes)), nil, meta.Result{Changed: true, Revision: 1}},
		{"setting over the bound", nil, meta.PutSetting("k", make([]byte, meta.MaxSettingValueBytes+1)), meta.ErrInvalid, meta.Result{}},
		{"setting of a bad name", nil, meta.PutSetting("a b", nil), meta.ErrInvalid, meta.Result{}},
		{"delete an absent setting", nil, meta.DeleteSetting("k"), nil, meta.Result{}},
		{"incomplete", nil, []byte(`{"v":1,"op":"bind","entityType":"a"}`), meta.ErrInvalid, meta.Result{}},
		{"over the bound", nil, append(meta.DeleteSetting("k"), bytes.Repeat([]byte(" "), meta.MaxCommandBytes)...), meta.ErrInvalid, meta.Result{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := created(t, tt.setup...)
			before := s.View()
			writes, result, _ := s.Apply(99, tt.body)
			res, err := meta.DecodeResult(result)
			if !errors.Is(err, tt.want) {
				t.Fatalf("got error %v, want %v", err, tt.want)
			}
			if !reflect.DeepEqual(res, tt.res) {
				t.Errorf("got %+v, want %+v", res, tt.res)
			}
			if (len(writes) > 0) != tt.res.Changed {
				t.Errorf("got %d writes with changed=%v", len(writes), tt.res.Changed)
			}
			if got := s.View().Index(); got != 99 {
				t.Errorf("index is %d after a command at 99", got)
			}
			if err != nil && dump(before) != dump(s.View()) {
				t.Errorf("a refused command changed the state")
			}
		})
	}
}

func TestOnlyCreateIsAcceptedBeforeCluster(t *testing.T) {
	for _, body := range [][]byte{meta.PutMember(founder), meta.PutSetting("k", nil), meta.Rollback("a", 1)} {
		_, result, _ := meta.New().Apply(1, body)
		if _, err := meta.DecodeResult(result); !errors.Is(err, meta.ErrNoCluster) {
			t.Errorf("%s: got %v, want %v", body, err, meta.ErrNoCluster)
		}
	}
}

// Place is retried if its outcome is unknown. The retry must return the replica
// ids of the first command and not allocate new ids.
func TestRepeatedPlaceKeepsReplicaIDs(t *testing.T) {
	place := meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n1"}}, meta.PlaceOn{Shard: 2, Nodes: []sharding.NodeID{"n1"}})
	s := created(t, place)
	_, first, _ := s.Apply(10, place)
	_, second, _ := s.Apply(11, place)
	if !bytes.Equal(first, second) {
		t.Fatalf("got %s, then %s", first, second)
	}
	seen := map[sharding.ReplicaID]bool{}
	for _, p := range s.View().Placements() {
		for _, r := range p.Replicas {
			if r.ID == 0 || seen[r.ID] {
				t.Errorf("shard %d: replica id %d is 0 or used twice", p.Shard, r.ID)
			}
			seen[r.ID] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("got %d replicas, want 3: the metadata shard's and two", len(seen))
	}
}

// A revision is rolled back at most once, however often that is requested, and
// not at all after a later revision serves.
func TestRevisionIsRolledBackOnce(t *testing.T) {
	commands := [][]byte{meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.PutModule(module(3, "a")),
		meta.Bind("a", digest(1), 1), meta.Bind("a", digest(2), 2), meta.Bind("a", digest(3), 3)}
	first := created(t, commands...)
	refused(t, first, meta.ErrClusterVersion, meta.RollbackOf("a", 3, 4))
	s := created(t, append([][]byte{meta.RaiseClusterVersion(2, speaker("n1", 0, 2))}, commands...)...)
	index := uint64(20)
	rollback := func(revision uint64) (meta.Result, error) {
		index++
		_, result, err := s.Apply(index, meta.RollbackOf("a", revision, 4))
		if err != nil {
			t.Fatal(err)
		}
		return meta.DecodeResult(result)
	}
	for range 2 {
		if got, err := rollback(3); err != nil || got.Revision != 4 {
			t.Errorf("the rollback: %+v, %v", got, err)
		}
		if b, _ := s.View().Activation("a"); b.Digest != digest(2) || b.TookBack != 3 || len(b.History) != 1 {
			t.Fatalf("it led to %+v", b)
		}
	}
	for _, other := range []uint64{2, 5} {
		if got, err := rollback(other); !errors.Is(err, meta.ErrConflict) {
			t.Errorf("revision %d: %+v, %v", other, got, err)
		}
	}
	if got, err := rollback(4); err != nil || got.Revision != 5 {
		t.Errorf("one further back: %+v, %v", got, err)
	}
	if got, err := rollback(5); !errors.Is(err, meta.ErrNoPrevious) {
		t.Errorf("back from the first: %+v, %v", got, err)
	}
}

func TestRollbackGoesFurtherBackEachTime(t *testing.T) {
	s := created(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "b", "a")), meta.PutModule(module(3, "a")),
		meta.Bind("a", digest(1), 1), meta.Bind("a", digest(2), 2), meta.Bind("a", digest(3), 3), meta.Rollback("a", 4))
	b, _ := s.View().Activation("a")
	if b.Digest != digest(2) || b.TypeIndex != 1 || b.Revision != 4 || b.At != 4 {
		t.Fatalf("after one rollback: %+v", b.Bound)
	}
	_, _, _ = s.Apply(20, meta.Rollback("a", 5))
	if b, _ = s.View().Activation("a"); b.Digest != digest(1) || b.Revision != 5 {
		t.Fatalf("after two rollbacks: %+v", b.Bound)
	}
	_, result, _ := s.Apply(21, meta.Rollback("a", 6))
	if _, err := meta.DecodeResult(result); !errors.Is(err, meta.ErrNoPrevious) {
		t.Fatalf("after three: %v", err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s := created(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")))
	for i := range 3 * meta.MaxActivationHistory {
		s.Apply(uint64(i+10), meta.Bind("a", digest(byte(1+i%2)), int64(i)))
	}
	b, _ := s.View().Activation("a")
	if len(b.History) != meta.MaxActivationHistory {
		t.Fatalf("history of %d, want %d", len(b.History), meta.MaxActivationHistory)
	}
	if got, want := b.History[len(b.History)-1].Revision, b.Revision-1; got != want {
		t.Errorf("newest in the history has revision %d, want %d", got, want)
	}
}

// A view is a snapshot: later commands must not change it.
func TestViewIsImmutable(t *testing.T) {
	s := created(t, meta.PutModule(module(1, "a")), meta.PutSetting("k", []byte("v")))
	old := s.View()
	want := dump(old)
	s.Apply(9, meta.PutModule(module(2, "a")))
	s.Apply(10, meta.Bind("a", digest(2), 1))
	s.Apply(11, meta.DeleteSetting("k"))
	s.Apply(12, meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n1"}}))
	s.Apply(13, meta.PutMember(meta.Member{Node: "n2", Address: "x", Status: meta.StatusDown}))
	if got := dump(old); got != want {
		t.Errorf("the view changed:\n%s\nwas\n%s", got, want)
	}
}

// Two state machines that apply the same random commands agree byte for byte. A
// third state machine that is restored from the stored pairs halfway agrees
// with them.
func TestRandomCommandsAreDeterministic(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		a, b, disk := meta.New(), meta.New(), map[string][]byte{}
		for i := range uint64(300) {
			body := randomCommand(rng)
			aw, ar, _ := a.Apply(i+1, body)
			bw, br, _ := b.Apply(i+1, body)
			if !reflect.DeepEqual(aw, bw) || !bytes.Equal(ar, br) {
				t.Fatalf("seed %d, command %d: replicas differ on %s", seed, i, body)
			}
			for _, w := range aw {
				if w.Value == nil {
					delete(disk, string(w.Key))
				} else {
					disk[string(w.Key)] = w.Value
				}
			}
			if rng.IntN(40) == 0 {
				b = restored(t, disk)
			}
			if got, want := dump(b.View()), dump(a.View()); got != want {
				t.Fatalf("seed %d, command %d: restored\n%s\nlive\n%s", seed, i, got, want)
			}
		}
	}
}

func restored(t *testing.T, disk map[string][]byte) *meta.State {
	t.Helper()
	s := meta.New()
	var pairs []meta.KV
	for key, value := range disk { // random map order is part of the test
		pairs = append(pairs, meta.KV{Key: []byte(key), Value: value})
	}
	if err := s.Load(0, pairs); err != nil {
		t.Fatal(err)
	}
	return s
}

// loads builds a state from one stored pair.
func loads(key string, value []byte) error {
	return meta.New().Load(0, []meta.KV{{Key: []byte(key), Value: value}})
}

func randomCommand(rng *rand.Rand) []byte {
	node := func() sharding.NodeID { return sharding.NodeID(fmt.Sprintf("n%d", 1+rng.IntN(4))) }
	typ := func() string { return string(rune('a' + rng.IntN(3))) }
	switch rng.IntN(9) {
	case 0:
		return meta.CreateCluster(cluster, founder)
	case 1:
		return meta.PutMember(meta.Member{Node: node(), Address: fmt.Sprint(rng.IntN(3)), Status: meta.StatusUp})
	case 2:
		return meta.Place(meta.PlaceOn{Shard: sharding.ShardID(rng.IntN(5)), Nodes: []sharding.NodeID{node(), node()}})
	case 3:
		return meta.PutModule(module(byte(rng.IntN(5)), typ(), typ()))
	case 4, 5:
		return meta.Bind(typ(), digest(byte(rng.IntN(5))), rng.Int64N(100))
	case 6:
		return meta.Rollback(typ(), rng.Int64N(100))
	case 7:
		return meta.DeleteSetting(typ())
	default:
		return meta.PutSetting(typ(), []byte(strings.Repeat("x", rng.IntN(3))))
	}
}

// dump writes everything in a view except the index.
func dump(v *meta.View) string {
	var out strings.Builder
	c, ok := v.Cluster()
	policy, set := v.Policy()
	fmt.Fprintln(&out, c, ok, v.Revision(), v.SettingRevision(), policy, set)
	fmt.Fprintf(&out, "%+v\n%+v\n%+v\n%+v\n", v.Members(), v.Placements(), v.Modules(), v.Activations())
	for _, k := range v.SettingKeys() {
		value, _ := v.Setting(k)
		fmt.Fprintf(&out, "%s=%q %d\n", k, value.Value, value.Revision)
	}
	fmt.Fprintln(&out, v.Roles(), v.RoleBindings(), v.RoleRevision())
	return out.String()
}

// The bytes of commands, stored pairs and results are formats: a change here
// breaks the logs of running clusters.
func TestGolden(t *testing.T) {
	s, out := meta.New(), strings.Builder{}
	for i, body := range [][]byte{
		meta.CreateCluster(cluster, founder),
		meta.PutMember(meta.Member{Node: "n2", Address: "127.0.0.1:7071", Status: meta.StatusUp}),
		meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n1", "n2"}}, meta.PlaceOn{Shard: 2, Nodes: []sharding.NodeID{"n2"}}),
		meta.PutModule(module(0xab, "counter", "account")),
		meta.Bind("account", digest(0xab), 5),
		meta.PutModule(module(0xcd, "account")),
		meta.Bind("account", digest(0xcd), 6),
		meta.Rollback("account", 7),
		meta.Bind("account", digest(0xee), 8),
		meta.PutSetting("log.level", []byte("debug")),
		meta.DeleteSetting("log.level"),
		meta.PutPolicy(meta.Policy{Replication: 3, MinMembers: 2, Rebalance: true}),
		meta.Join(meta.Member{Node: "n3", Address: "127.0.0.1:7072", Disk: "d3", Incarnation: 9, Roles: []string{"data"}, Version: "1.0", Zone: "z"}),
		meta.SetStatus("n3", 9, meta.StatusUp),
		meta.AddReplica(2, "n3"),
		meta.ChangeReplicas(meta.Change{Shard: 2, Promote: []sharding.ReplicaID{6}, Retire: []sharding.ReplicaID{4}}),
		meta.Forget(2, 4),
		meta.Down("n3"),
		meta.Join(meta.Member{Node: "n3", Address: "127.0.0.1:7072", Disk: "other", Incarnation: 10}),
		meta.Join(meta.Member{Node: "n4", Address: "127.0.0.1:7073", Disk: "d4", Incarnation: 1}),
		meta.SetStatus("n4", 0, meta.StatusLeaving),
		meta.Retire(0, 8),
		meta.Forget(0, 8),
		meta.RemoveMember("n4"),
		meta.BindLimited("account", digest(0xab), 9, meta.Limits{CommandFuel: 1000, QueryFuel: 2000, MaxEvents: 3, EventBytes: 4, ReplyBytes: 5}),
		meta.SetDraining("n1", 0, true),
		meta.SetDraining("n3", 10, true),
		meta.SetDraining("n3", 10, false),
		meta.BindLimited("account", digest(0xab), 10, meta.Limits{MemoryBytes: 6, TypeMemoryBytes: 7, RatePerSecond: 8}),
	} {
		writes, result, _ := s.Apply(uint64(i+1), body)
		fmt.Fprintf(&out, "command %s\n", body)
		for _, w := range writes {
			if w.Value == nil {
				fmt.Fprintf(&out, "  delete %s\n", w.Key)
				continue
			}
			fmt.Fprintf(&out, "  store %s %s\n", w.Key, w.Value)
		}
		fmt.Fprintf(&out, "  result %s\n", result)
	}
	const path = "testdata/golden.txt"
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("the formats changed; got\n%s", out.String())
	}
}

func TestRestoreRejectsUnknownKeys(t *testing.T) {
	for _, kv := range [][2]string{
		{"", "{}"}, {"cluster", ""}, {"cluster", `{"v":1,"value":{"shards":"x"}}`},
		{"member/n1", "x"}, {"shard/x", `{"v":1,"value":{}}`}, {"module/ff", `{"v":1,"value":{}}`}, {"odd\xff/a", `{"v":1,"value":{}}`},
		{"binding/a", `{"v":1,"value":{"odd":1}`}, {"counters", `{"v":1}`}, {"level", `{"v":1,"value":{"level":1}}`},
		{"shard/0000000001", `{"v":1,"value":{"replicas":[{"id":"x"}]}}`},
	} {
		if err := loads(kv[0], []byte(kv[1])); !errors.Is(err, meta.ErrCorrupt) {
			t.Errorf("%q=%q: got %v", kv[0], kv[1], err)
		}
	}
}

func TestDecodeResultRejectsDamage(t *testing.T) {
	for _, bad := range []string{"", "{", `{"v":9}`, `{"v":1,"code":"odd"}`, `{"v":1}x`} {
		if _, err := meta.DecodeResult([]byte(bad)); !errors.Is(err, meta.ErrCorrupt) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

// Whatever the log contains, Apply returns a result that can be decoded, and
// the stored pairs restore to the same state.
func FuzzApply(f *testing.F) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 50 {
		f.Add(randomCommand(rng))
		_, body := randomClusterCommand(rng, meta.New().View())
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := created(t, meta.PutModule(module(1, "a", "b")), meta.Bind("a", digest(1), 1))
		disk := map[string][]byte{}
		base := dump(s.View())
		writes, result, err := s.Apply(50, body)
		if (meta.Check(body) == nil) == errors.Is(err, meta.ErrUnsupported) && err != nil {
			t.Fatalf("%s may be proposed, and stops replicas: %v", body, err)
		}
		if err != nil {
			if result != nil || len(writes) > 0 || dump(s.View()) != base || s.View().Index() == 50 {
				t.Fatalf("%s was passed over: %v", body, err)
			}
			return
		}
		if _, err := meta.DecodeResult(result); errors.Is(err, meta.ErrCorrupt) {
			t.Fatalf("result %s: %v", result, err)
		}
		if len(writes) == 0 && dump(s.View()) != base {
			t.Fatalf("%s changed the state without a write", body)
		}
		if loaded := meta.New(); loaded.Load(50, s.Dump()) != nil || dump(loaded.View()) != dump(s.View()) {
			t.Fatalf("%s left a state that does not load from its dump", body)
		}
		for _, w := range writes {
			disk[string(w.Key)] = w.Value
		}
		for _, key := range slices.Sorted(maps.Keys(disk)) {
			if disk[key] == nil {
				continue
			}
			if err := loads(key, disk[key]); err != nil {
				t.Fatalf("%s=%s: %v", key, disk[key], err)
			}
		}
	})
}
