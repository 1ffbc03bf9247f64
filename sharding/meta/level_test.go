package meta_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

// speaking returns a node whose release supports the versions.
func speaking(name string, incarnation uint64, least, most sharding.ClusterVersion) meta.Member {
	m := node(name, name, incarnation)
	m.Speaks = sharding.VersionRange{Min: least, Max: most}
	return m
}

func speaker(node sharding.NodeID, incarnation uint64, most sharding.ClusterVersion) meta.Speaker {
	return meta.Speaker{Node: node, Incarnation: incarnation, Speaks: sharding.VersionRange{Min: 1, Max: most}}
}

func TestClusterStartsAtBootstrapNodesVersion(t *testing.T) {
	old := created(t)
	if old.ClusterVersion() != 1 {
		t.Errorf("founded by the release before: level %d", old.ClusterVersion())
	}
	f := founder
	f.Speaks = sharding.SupportedVersions
	s := meta.New()
	run(t, s, meta.CreateCluster(cluster, f))
	if s.ClusterVersion() != sharding.MaxVersion {
		t.Errorf("founded by this release: level %d", s.ClusterVersion())
	}
	f.Speaks = sharding.VersionRange{Min: 1, Max: sharding.MaxVersion + 1}
	if _, _, err := meta.New().Apply(1, meta.CreateCluster(cluster, f)); !errors.Is(err, meta.ErrUnsupported) {
		t.Errorf("founded by a later release: %v", err)
	}
}

func TestVersionIsRaisedIfAllMembersSupportIt(t *testing.T) {
	s := three(t) // n1 of incarnation 0; n2 and n3 of 1
	all := []meta.Speaker{speaker("n1", 0, 2), speaker("n2", 1, 2), speaker("n3", 1, 3)}
	for _, tt := range []struct {
		name string
		by   []meta.Speaker
		says string
	}{
		{"nobody was asked", nil, "n1 has not reported"},
		{"one is missing", all[:2], "n3 has not reported"},
		{"one does not speak it", []meta.Speaker{all[0], speaker("n2", 1, 1), all[2]}, "n2 supports cluster version 1"},
		{"one says nothing", []meta.Speaker{all[0], {Node: "n2", Incarnation: 1}, all[2]}, "n2 supports cluster version 1"},
		{"one has another start", []meta.Speaker{all[0], speaker("n2", 2, 2), all[2]}, "start 1 is the current one of node n2, but start 2"},
		{"a range that is none", []meta.Speaker{all[0], all[1], {Node: "n3", Incarnation: 1, Speaks: sharding.VersionRange{Min: 3, Max: 2}}}, "n3 supports"},
	} {
		command := meta.RaiseClusterVersion(2, tt.by...)
		refused(t, s, meta.ErrClusterVersion, command)
		_, result, _ := s.Apply(s.View().Index()+1, command)
		if _, err := meta.DecodeResult(result); !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, which does not say %q", tt.name, err, tt.says)
		}
	}
	// A node that is down counts too, because it may come back.
	run(t, s, meta.SetStatus("n3", 0, meta.StatusDown))
	refused(t, s, meta.ErrClusterVersion, meta.RaiseClusterVersion(2, all[:2]...))

	if r := run(t, s, meta.RaiseClusterVersion(2, all...)); !r.Changed || s.ClusterVersion() != 2 {
		t.Fatalf("raised: %+v, level %d", r, s.ClusterVersion())
	}
	for _, m := range s.View().Members() {
		if !m.Speaks.Contains(2) {
			t.Errorf("node %s is kept as speaking %v", m.Node, m.Speaks)
		}
	}
	if r := run(t, s, meta.RaiseClusterVersion(2)); r.Changed {
		t.Error("raising it again changed something")
	}
	refused(t, s, meta.ErrClusterVersion, meta.RaiseClusterVersion(1, all...))
	loaded := meta.New()
	if err := loaded.Load(9, s.Dump()); err != nil || loaded.ClusterVersion() != 2 {
		t.Errorf("loaded: level %d, %v", loaded.ClusterVersion(), err)
	}
}

func TestNodesWithoutTheVersionAreRejected(t *testing.T) {
	s := created(t)
	// At version 1 the supported versions cannot be stored; replicas of the
	// previous release reject such a command too.
	refused(t, s, meta.ErrClusterVersion, meta.Join(speaking("n2", 1, 1, 2)))
	run(t, s, s.View().Join(speaking("n2", 1, 1, 2)))
	if m, _ := s.View().Member("n2"); m.Speaks != (sharding.VersionRange{}) {
		t.Errorf("level 1 keeps %v", m.Speaks)
	}
	// Nor can the peer address.
	apart := node("n2", "n2", 1)
	apart.PeerAddress = "n2:2"
	refused(t, s, meta.ErrClusterVersion, meta.Join(apart))
	run(t, s, s.View().Join(apart))
	if m, _ := s.View().Member("n2"); m.PeerAddress != "" || m.PeerEndpoint() != m.Address {
		t.Errorf("level 1 keeps %+v", m)
	}
	run(t, s, meta.RaiseClusterVersion(2, speaker("n1", 0, 2), speaker("n2", 1, 2)))
	apart.Speaks = sharding.VersionRange{Min: 1, Max: 2}
	if r := run(t, s, s.View().Join(apart)); !r.Changed || r.Joined.Fresh {
		t.Errorf("level 2 does not take where the start that it knows serves other nodes: %+v", r)
	}
	if m, _ := s.View().Member("n2"); m.PeerEndpoint() != "n2:2" {
		t.Errorf("level 2 keeps %+v", m)
	}
	refused(t, s, meta.ErrClusterVersion, s.View().Join(node("n3", "c", 1)))
	refused(t, s, meta.ErrClusterVersion, s.View().Join(node("n2", "n2", 2)))
	refused(t, s, meta.ErrClusterVersion, meta.PutMember(founder))
	refused(t, s, meta.ErrClusterVersion, s.View().Join(speaking("n3", 1, 3, 4)))
	refused(t, s, meta.ErrInvalid, s.View().Join(speaking("n3", 1, 2, 1)))
	if j := run(t, s, s.View().Join(speaking("n3", 1, 2, 3))).Joined; j.Member.Speaks != (sharding.VersionRange{Min: 2, Max: 3}) {
		t.Errorf("admitted as %+v", j.Member)
	}
}

func TestLimitsOfHigherVersionAreRejected(t *testing.T) {
	s := created(t, meta.PutModule(module(1, "a")))
	for _, l := range []meta.Limits{{FuelPerSecond: 1}, {BytesPerSecond: 1}} {
		refused(t, s, meta.ErrClusterVersion, meta.BindLimited("a", digest(1), 7, l))
		if err := s.View().CheckLimits(l); !errors.Is(err, meta.ErrClusterVersion) {
			t.Errorf("%+v may be bound: %v", l, err)
		}
	}
	run(t, s, meta.RaiseClusterVersion(2, speaker("n1", 0, 2)))
	for i, l := range []meta.Limits{{FuelPerSecond: 1}, {BytesPerSecond: 1}} {
		if r := run(t, s, meta.BindLimited("a", digest(1), 7, l)); r.Revision != uint64(i+1) {
			t.Errorf("%+v is revision %d", l, r.Revision)
		}
	}
	for _, l := range []meta.Limits{{FuelPerSecond: -1}, {BytesPerSecond: -1}} {
		refused(t, s, meta.ErrInvalid, meta.BindLimited("a", digest(1), 7, l))
	}
}

// A replica that ignored an unknown part of a command would diverge from the
// replicas that know it.
func TestCommandsOfLaterReleasesStopReplicas(t *testing.T) {
	s := created(t)
	for _, body := range []string{
		`{"v":1,"op":"change","change":{"shard":1,"add":["n1"]},"reason":"x"}`,
		`{"v":1,"op":"put_member","member":{"node":"n2","address":"a","status":"up","capacity":3}}`,
		`{"v":1,"op":"put_member","member":{"node":"n2","address":"a","status":"asleep"}}`,
		`{"v":1,"op":"set_status","status":{"node":"n1","status":"asleep"}}`,
		`{"v":1,"op":"split_shard","change":{"shard":1}}`,
		`{"v":2,"op":"place","place":[{"shard":1,"nodes":["n1"]}]}`,
		fmt.Sprintf(`{"v":1,"op":"raise_level","raise":{"level":%[1]d,"speakers":[{"node":"n1","incarnation":0,"speaks":{"min":1,"max":%[1]d}}]}}`, sharding.MaxVersion+1),
		`{"v":1,"op":"rollback","entityType":"a","force":true}`,
		`{"v":1,"op":"rollback","entityType":"a"}{}`,
		``, `{`, `null`, `{}`,
	} {
		before, index := dump(s.View()), s.View().Index()
		writes, result, err := s.Apply(index+1, []byte(body))
		if !errors.Is(err, meta.ErrUnsupported) || writes != nil || result != nil {
			t.Errorf("%s: %s, %v", body, result, err)
		}
		if dump(s.View()) != before || s.View().Index() != index {
			t.Errorf("%s was passed over", body)
		}
		if err := meta.Check([]byte(body)); !errors.Is(err, meta.ErrInvalid) {
			t.Errorf("%s may be proposed: %v", body, err)
		}
	}
	// A command that all replicas reject stops no replica.
	for _, body := range []string{`{"v":1,"op":"change"}`, `{"v":1,"op":"put_member","member":{"node":"n/2","address":"a","status":"up"}}`} {
		refused(t, s, meta.ErrInvalid, []byte(body))
	}
	long := meta.PutSetting("k", make([]byte, meta.MaxCommandBytes))
	refused(t, s, meta.ErrInvalid, long)
	if err := meta.Check(long); !errors.Is(err, meta.ErrInvalid) {
		t.Errorf("an over-long command may be proposed: %v", err)
	}
}

func TestStateOfLaterReleaseIsUnsupported(t *testing.T) {
	for _, kv := range [][2]string{
		{"cluster", `{"v":2,"value":{}}`}, {"cluster/", `{"v":1,"value":{}}`}, {"region/a", `{"v":1,"value":{}}`},
		{"member/n1", `{"v":1,"value":{"node":"n1","address":"a","status":"up","capacity":3}}`},
		{"member/n1", `{"v":1,"value":{"node":"n1","address":"a","status":"asleep"}}`},
		{"shard/0000000001", `{"v":1,"value":{"shard":1,"replicas":[{"id":1,"node":"n1","state":"witness"}]}}`},
		{"shard/0000000001", `{"v":1,"value":{"shard":1,"replicas":[{"id":1,"node":"n1","weight":1}]}}`},
		{"setting/k", `{"v":3,"value":{}}`}, {"setting/k", `{"v":2,"value":{"revision":1,"by":"me"}}`},
		{"level", fmt.Sprintf(`{"v":1,"value":{"level":%d}}`, sharding.MaxVersion+1)},
		{"counters", `{"v":1,"value":{"nextReplica":1,"revision":0},"sum":"x"}`},
	} {
		s := created(t)
		before := dump(s.View())
		if err := s.Load(7, []meta.KV{{Key: []byte(kv[0]), Value: []byte(kv[1])}}); !errors.Is(err, meta.ErrUnsupported) {
			t.Errorf("%q=%q: got %v", kv[0], kv[1], err)
		}
		if dump(s.View()) != before {
			t.Errorf("%q=%q: it changed the state", kv[0], kv[1])
		}
	}
}

func TestGoldenVersion2(t *testing.T) {
	s, out := meta.New(), strings.Builder{}
	for i, body := range [][]byte{
		meta.CreateCluster(cluster, founder),
		meta.RaiseClusterVersion(2, speaker("n1", 0, 2)),
		meta.Join(speaking("n2", 3, 1, 2)),
		meta.Join(node("n3", "c", 1)),
		meta.Down("n2"),
		meta.Retire(sharding.MetaShard, 2),
		meta.Forget(sharding.MetaShard, 2),
		meta.RemoveMember("n2"),
		meta.Join(speaking("n2", 3, 1, 2)),
		meta.Join(speaking("n2", 4, 1, 2)),
		meta.PutModule(module(0xab, "account")),
		meta.BindLimited("account", digest(0xab), 9, meta.Limits{FuelPerSecond: 1, BytesPerSecond: 2}),
		meta.PutModule(module(0xac, "account")),
		meta.Bind("account", digest(0xac), 10),
		meta.RollbackOf("account", 2, 11),
		meta.BindOver("account", digest(0xac), 12, 2, nil),
		meta.BindOver("account", digest(0xac), 13, 3, &meta.Limits{}),
		meta.BindOver("account", digest(0xac), 14, 3, nil),
		meta.WithPrincipal(meta.BindForced("account", digest(0xab), 15, 4, nil, "token:ci"), "token:ci"),
		meta.ChangePolicy(meta.Policy{}, meta.Policy{Replication: 3, MinMembers: 1}),
		meta.ChangePolicy(meta.Policy{Replication: 1, MinMembers: 1}, meta.Policy{Replication: 5, MinMembers: 1}),
		meta.SetStatus("n2", 4, meta.StatusUp),
		meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n1", "n2"}}),
		meta.RecoverShard(1, 4),
		meta.Down("n2"),
		meta.RecoverShard(1, 4),
		meta.PutRole(access.Role{Name: "clerk", Rules: []access.Rule{
			{Effect: access.Allow, Verbs: []string{access.Invoke, access.Query}, Types: []string{"order", "inv-*"}, IDPrefixes: []string{"${principal.name}/"}, Commands: []string{"add"}},
			{Effect: access.Deny, Verbs: []string{access.Read}},
		}}),
		bound("token:ci", "viewer", "clerk"),
		bound("group:ops", access.RoleAdmin),
		meta.DeleteRoleBinding("group:ops"),
		meta.DeleteRoleBinding("token:ci"),
		meta.DeleteRole("clerk"),
		meta.WithOwner(meta.Bind("account", digest(0xab), 12), meta.Ownership{Is: "token:ci"}),
		meta.WithOwner(meta.Bind("account", digest(0xac), 13), meta.Ownership{Is: "token:other"}),
		meta.PutTypeOwner("account", meta.Ownership{Was: "token:ci", Is: "group:team-a"}),
		meta.WithOwner(meta.Bind("account", digest(0xac), 14), meta.Ownership{Was: "group:team-a", Is: "group:team-a"}),
		meta.WithOwner(meta.RollbackOf("account", 4, 15), meta.Ownership{Was: "group:team-a", Is: "group:team-a"}),
		meta.PutModule(signed(module(0xab, "account"), 1)),
		meta.PutModule(uploaded(0xad, "token:ci")),
		meta.RemoveModule(digest(0xad)),
		meta.RemoveModule(digest(0xab)),
		meta.PutFirstToken(access.Token{Name: "root", Hash: access.HashToken("hst_root"), CreatedAt: 1_700_000_000_000_000_000}, access.RoleAdmin),
		meta.PutFirstToken(access.Token{Name: "me", Hash: access.HashToken("hst_me"), CreatedAt: 1_700_000_000_000_000_000}, access.RoleAdmin),
		meta.PutFirstRoleBinding(access.Binding{Subject: "group:ops", Roles: []string{access.RoleAdmin}}),
		meta.PutToken(access.Token{Name: "ci", Hash: access.HashToken("hst_ci"), Expires: 1_700_000_060, CreatedAt: 1_700_000_000_000_000_000}, "viewer", "invoker"),
		meta.PutToken(access.Token{Name: "cd", Hash: access.HashToken("hst_cd"), CreatedAt: 1_700_003_661_000_000_000}, "viewer"),
		meta.DeleteToken("cd"),
		meta.DeleteToken("root"),
		meta.PutModule(module(0xae, "account")),
		meta.PutModule(module(0xaf, "account")),
		meta.CollectModules(1_700_000_000_000_000_000),
		meta.PutModule(module(0xaf, "account")),
		meta.CollectModules(1_702_592_000_000_000_000),
		meta.PutModule(module(0xb1, "left", "right")),
		meta.PutModule(module(0xb2, "left", "right")),
		meta.Bind("left", digest(0xb1), 16),
		meta.Bind("right", digest(0xb1), 17),
		meta.Bind("left", digest(0xb2), 18),
		meta.Bind("right", digest(0xb2), 19),
		meta.WithPrincipal(meta.RollbackWith("left", 9, 20, "token:ci", meta.TakeBack{EntityType: "right", Revision: 10, Owner: &meta.Ownership{Is: "token:ci"}}), "token:ci"),
		meta.PutVerificationResult("account", meta.VerificationResult{Digest: digest(0xaf), Revision: 6, At: 16, By: "token:ci", All: true, Snapshots: true, Entities: 7, Events: 8, Differences: 1, Faults: 2, Uncompared: 3, Cut: 4}),
		meta.WithOwner(meta.Bind("account", digest(0xaf), 17), meta.Ownership{Was: "group:team-a", Is: "group:team-a"}),
		meta.WithPrincipal(meta.PutRollouts(meta.ChangeCanary, 21, putRollout("left", 11, func(r *meta.Rollout) { r.By = "token:ci" })), "token:ci"),
		meta.PutRollouts("", 22, putRollout("left", 14, func(r *meta.Rollout) {
			r.State, r.Steps, r.Pause, r.DueAt, r.Rules, r.Note = meta.RolloutPaused, []uint32{2500, 10_000}, 60, 80, "faults>0", "waits"
		})),
		meta.PutRollouts(meta.ChangePromote, 23, meta.PutRollout{EntityType: "left", Over: 15, Promote: true, ForcedBy: "token:ci"}),
		meta.PauseTypeWrites("account", 13),
		meta.ResumeTypeWrites("account", 14),
	} {
		golden(t, s, &out, uint64(i+1), body)
	}
	sameGolden(t, "testdata/golden_level_2.txt", out.String())
}

// Adds the formats of version 3.
func TestGoldenVersion3(t *testing.T) {
	s, out := meta.New(), strings.Builder{}
	for i, body := range [][]byte{
		meta.CreateCluster(cluster, founder),
		meta.RaiseClusterVersion(3, speaker("n1", 0, 3)),
		meta.PutModule(module(0xab, "left")),
		meta.PutModule(module(0xac, "left")),
		meta.Bind("left", digest(0xab), 9),
		meta.PauseTypeWrites("left", 1),
		meta.PutVerificationResult("left", meta.VerificationResult{Digest: digest(0xac), Revision: 1, At: 10, Entities: 2, Snapshots: true, Truncated: []meta.Digest{digest(0xab)}, Proved: true}),
		meta.BindOver("left", digest(0xac), 11, 1, nil),
		meta.RollbackOf("left", 3, 12),
		meta.PutVerificationResult("left", meta.VerificationResult{Digest: digest(0xac), Revision: 4, At: 13, Entities: 2, Truncated: []meta.Digest{digest(0xab)}, Proved: true}),
		meta.PutRollouts(meta.ChangeCanary, 14, putRollout("left", 4, func(r *meta.Rollout) { r.Digest, r.Accept = digest(0xac), true })),
		meta.PauseTypeWrites("left", 5),
		meta.PutRollouts(meta.ChangePromote, 15, meta.PutRollout{EntityType: "left", Over: 5, Promote: true}),
		meta.Join(speaking("n2", 5, 1, 3)),
		meta.SetStatus("n2", 5, meta.StatusLeaving),
		meta.SetStatus("n2", 5, meta.StatusDown),
		meta.SetStatus("n2", 5, meta.StatusUp),
		meta.PutModule(module(0xad, "left")),
		meta.PutRollouts("", 16, putRollout("left", 7, verifying(0xad, func(r *meta.Rollout) { r.Accept, r.Force, r.Limits = true, true, &meta.Limits{MaxEvents: 3} }))),
		meta.PauseTypeWrites("left", 8),
		meta.PutVerificationResult("left", meta.VerificationResult{Digest: digest(0xad), Revision: 8, At: 17, Entities: 2, Truncated: []meta.Digest{digest(0xac)}, Proved: true}),
		meta.WithPrincipal(meta.PutRollouts(meta.ChangeActivate, 18, meta.PutRollout{EntityType: "left", Over: 8, Promote: true}), "token:ci"),
		meta.PutRollouts("", 19, putRollout("left", 10, verifying(0xab, func(*meta.Rollout) {}))),
		meta.PutRollouts("", 20, putRollout("left", 11, verifying(0xab, func(r *meta.Rollout) { r.State, r.Note = meta.RolloutRefused, "another state" }))),
	} {
		golden(t, s, &out, uint64(i+1), body)
	}
	sameGolden(t, "testdata/golden_level_3.txt", out.String())
}

// golden applies a command and appends it with its effects.
func golden(t *testing.T, s *meta.State, out *strings.Builder, index uint64, body []byte) {
	t.Helper()
	writes, result, err := s.Apply(index, body)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(out, "command %s\n", body)
	for _, w := range writes {
		fmt.Fprintf(out, "  store %s %s\n", w.Key, w.Value)
	}
	fmt.Fprintf(out, "  result %s\n", result)
}

// sameGolden compares with a file, which the flag rewrites.
func sameGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || got != string(want) {
		t.Errorf("the formats changed (%v); got\n%s", err, got)
	}
}
