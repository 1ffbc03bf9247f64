package meta_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

func node(name, disk string, incarnation uint64, roles ...string) meta.Member {
	return meta.Member{Node: sharding.NodeID(name), Address: name + ":1", Disk: disk, Incarnation: incarnation, Roles: roles, Version: "1.0"}
}

// run applies the commands, all of which must succeed, and returns the last
// result.
func run(t *testing.T, s *meta.State, commands ...[]byte) (last meta.Result) {
	t.Helper()
	for _, c := range commands {
		_, result, _ := s.Apply(s.View().Index()+1, c)
		res, err := meta.DecodeResult(result)
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		last = res
	}
	return last
}

func refused(t *testing.T, s *meta.State, want error, command []byte) {
	t.Helper()
	before := dump(s.View())
	_, result, _ := s.Apply(s.View().Index()+1, command)
	if _, err := meta.DecodeResult(result); !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", command, err, want)
	}
	if dump(s.View()) != before {
		t.Fatalf("%s: refused, and changed the state", command)
	}
}

// three returns a cluster of n1, n2 and n3, all up, whose shard 1 has the
// voters 4, 5 and 6 on them.
func three(t *testing.T) *meta.State {
	t.Helper()
	s := created(t, meta.Join(node("n2", "b", 1)), meta.SetStatus("n2", 0, meta.StatusUp),
		meta.Join(node("n3", "c", 1)), meta.SetStatus("n3", 0, meta.StatusUp))
	run(t, s, meta.Promote(0, 2, 3), meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n1", "n2", "n3"}}))
	return s
}

func shape(s *meta.State, shard sharding.ShardID) string {
	p, _ := s.View().Placement(shard)
	var out []string
	for _, r := range p.Replicas {
		lost := ""
		if r.Lost {
			lost = "!"
		}
		out = append(out, fmt.Sprintf("%d@%s:%s%s", r.ID, r.Node, r.State, lost))
	}
	return strings.Join(out, " ")
}

func wantShape(t *testing.T, s *meta.State, shard sharding.ShardID, want string) {
	t.Helper()
	if got := shape(s, shard); got != want {
		t.Fatalf("shard %d is %s, want %s", shard, got, want)
	}
}

func TestJoinAdmitsANewNode(t *testing.T) {
	s := created(t)
	got := run(t, s, meta.Join(node("n2", "b", 7))).Joined
	member := node("n2", "b", 7)
	member.Status = meta.StatusJoining
	want := &meta.JoinResult{Member: member, Replica: 2, First: []sharding.ReplicaID{1}, Fresh: true}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	wantShape(t, s, 0, "1@n1:voter 2@n2:learner")
	again := run(t, s, meta.Join(node("n2", "b", 7)))
	if again.Joined.Replica != 2 || again.Joined.Fresh || again.Changed {
		t.Fatalf("the same join again: %+v", again)
	}
}

func TestJoinKeepsReplicasOfRestartedNode(t *testing.T) {
	s := three(t)
	j := run(t, s, meta.Join(node("n2", "b", 2))).Joined
	if j.Replica != 2 || j.Fresh || j.Member.Status != meta.StatusUp || j.Member.Incarnation != 2 {
		t.Fatalf("got %+v", j)
	}
	wantShape(t, s, 1, "4@n1:voter 5@n2:voter 6@n3:voter")
	refused(t, s, meta.ErrConflict, meta.Join(node("n2", "b", 1)))
	refused(t, s, meta.ErrInvalid, meta.Join(node("n2", "", 3)))
	refused(t, s, meta.ErrInvalid, meta.Join(node("n2", "b", 0)))
}

// A bootstrap node that was stored before disk ids existed adopts its first
// disk id.
func TestJoinAdoptsTheFirstDisk(t *testing.T) {
	s := created(t)
	if j := run(t, s, meta.Join(node("n1", "a", 1))).Joined; j.Replica != 1 || j.Fresh || j.Member.Status != meta.StatusUp {
		t.Fatalf("got %+v", j)
	}
	if j := run(t, s, meta.Join(node("n1", "z", 2))).Joined; j.Replica != 2 || !j.Fresh {
		t.Fatalf("got %+v", j)
	}
}

func TestJoinOfAWipedNodeLosesItsReplicas(t *testing.T) {
	s := three(t)
	run(t, s, meta.Place(meta.PlaceOn{Shard: 2, Nodes: []sharding.NodeID{"n2"}}))
	j := run(t, s, meta.Join(node("n2", "new", 2))).Joined
	if j.Replica != 8 || !j.Fresh || j.Member.Status != meta.StatusJoining {
		t.Fatalf("got %+v", j)
	}
	wantShape(t, s, 0, "1@n1:voter 2@n2:leaving! 3@n3:voter 8@n2:learner")
	wantShape(t, s, 1, "4@n1:voter 5@n2:leaving! 6@n3:voter")
	wantShape(t, s, 2, "7@n2:voter!") // its data is lost, and the placement must show that
	refused(t, s, meta.ErrConflict, meta.Retire(2, 7))
	run(t, s, meta.SetStatus("n2", 2, meta.StatusUp), meta.AddReplica(1, "n2"))
	wantShape(t, s, 1, "4@n1:voter 5@n2:leaving! 6@n3:voter 9@n2:learner")
	if r, ok := mustPlacement(t, s, 1).ReplicaOn("n2"); !ok || r.ID != 9 {
		t.Fatalf("n2 holds %+v of shard 1", r)
	}
}

func mustPlacement(t *testing.T, s *meta.State, shard sharding.ShardID) meta.Placement {
	t.Helper()
	p, ok := s.View().Placement(shard)
	if !ok {
		t.Fatalf("shard %d is not placed", shard)
	}
	return p
}

func TestDownNodeComesBack(t *testing.T) {
	s := three(t)
	run(t, s, meta.SetStatus("n2", 1, meta.StatusDown))
	refused(t, s, meta.ErrConflict, meta.SetStatus("n2", 9, meta.StatusUp))
	run(t, s, meta.SetStatus("n2", 1, meta.StatusUp), meta.SetStatus("n2", 1, meta.StatusDown))
	if j := run(t, s, meta.Join(node("n2", "b", 2))).Joined; j.Fresh || j.Member.Status != meta.StatusUp {
		t.Fatalf("with its replicas: %+v", j)
	}
	run(t, s, meta.SetStatus("n2", 0, meta.StatusDown), meta.Retire(0, 2))
	refused(t, s, meta.ErrConflict, meta.Join(node("n2", "b", 3))) // its vote may still be needed
	run(t, s, meta.Forget(0, 2))
	if j := run(t, s, meta.Join(node("n2", "b", 3))).Joined; !j.Fresh || j.Replica != 7 || j.Member.Status != meta.StatusJoining {
		t.Fatalf("without its replica of the metadata: %+v", j)
	}
	wantShape(t, s, 0, "1@n1:voter 3@n3:voter 7@n2:learner")
}

func TestOperatorDownLastsUntilNewStart(t *testing.T) {
	s := three(t)
	run(t, s, meta.Down("n2"), meta.Down("n2"))
	refused(t, s, meta.ErrConflict, meta.SetStatus("n2", 0, meta.StatusUp))
	refused(t, s, meta.ErrConflict, meta.Join(node("n2", "b", 1)))
	run(t, s, meta.Join(node("n2", "b", 2)))
	if m, _ := s.View().Member("n2"); m.Status != meta.StatusUp || m.Downed {
		t.Fatalf("got %+v", m)
	}
}

// A drain continues under any coordinator, across status changes and repeated
// joins of the same incarnation. A new incarnation or the operator ends the
// drain.
func TestDrainLastsUntilANewStart(t *testing.T) {
	s := three(t)
	draining := func(want bool) {
		t.Helper()
		if m, _ := s.View().Member("n2"); m.Draining != want {
			t.Fatalf("got %+v", m)
		}
	}
	run(t, s, meta.SetDraining("n2", 1, true), meta.SetDraining("n2", 0, true))
	draining(true)
	run(t, s, meta.Join(node("n2", "b", 1)), meta.SetStatus("n2", 1, meta.StatusLeaving), meta.SetStatus("n2", 1, meta.StatusUp))
	draining(true)
	run(t, s, meta.SetDraining("n2", 1, false))
	draining(false)
	run(t, s, meta.SetDraining("n2", 1, true), meta.Join(node("n2", "b", 2)))
	draining(false)
	refused(t, s, meta.ErrConflict, meta.SetDraining("n2", 1, true)) // meant for the previous incarnation
	refused(t, s, meta.ErrUnknownNode, meta.SetDraining("n9", 0, true))
	run(t, s, meta.SetDraining("n2", 2, true), meta.Join(node("n2", "new", 3)))
	draining(false)
}

func TestStatusMovesOnlyForward(t *testing.T) {
	for _, tt := range []struct {
		from, to meta.MemberStatus
		ok       bool
	}{
		{meta.StatusJoining, meta.StatusUp, true}, {meta.StatusJoining, meta.StatusLeaving, true}, {meta.StatusJoining, meta.StatusDown, true},
		{meta.StatusUp, meta.StatusLeaving, true}, {meta.StatusUp, meta.StatusDown, true}, {meta.StatusUp, meta.StatusJoining, false},
		{meta.StatusLeaving, meta.StatusUp, true}, {meta.StatusLeaving, meta.StatusDown, true}, {meta.StatusLeaving, meta.StatusJoining, false},
		{meta.StatusDown, meta.StatusUp, true}, {meta.StatusDown, meta.StatusLeaving, false}, {meta.StatusDown, meta.StatusJoining, false},
	} {
		s := created(t)
		m := node("n2", "b", 1)
		m.Status = tt.from
		run(t, s, meta.PutMember(m))
		if tt.ok {
			run(t, s, meta.SetStatus("n2", 1, tt.to))
		} else {
			refused(t, s, meta.ErrConflict, meta.SetStatus("n2", 1, tt.to))
		}
	}
}

func TestRemoveMember(t *testing.T) {
	s := three(t)
	refused(t, s, meta.ErrConflict, meta.RemoveMember("n3"))
	run(t, s, meta.SetStatus("n3", 0, meta.StatusLeaving))
	refused(t, s, meta.ErrConflict, meta.RemoveMember("n3"))
	run(t, s, meta.Retire(1, 6), meta.Forget(1, 6), meta.Retire(0, 3))
	refused(t, s, meta.ErrConflict, meta.RemoveMember("n3"))
	run(t, s, meta.Forget(0, 3), meta.RemoveMember("n3"), meta.RemoveMember("n3"))
	if _, known := s.View().Member("n3"); known {
		t.Fatal("n3 is still a member")
	}
}

func TestMembersAreBounded(t *testing.T) {
	s := created(t)
	for i := 1; i < meta.MaxMembers; i++ {
		run(t, s, meta.Join(node(fmt.Sprintf("x%d", i), "d", 1)))
	}
	refused(t, s, meta.ErrInvalid, meta.Join(node("one-more", "d", 1)))
	roles := make([]string, meta.MaxRoles)
	for i := range roles {
		roles[i] = fmt.Sprintf("r%d", i)
	}
	run(t, s, meta.Join(node("x1", "d", 1, roles...)))
	refused(t, s, meta.ErrInvalid, meta.Join(node("x1", "d", 1, append(roles, "more")...)))
}

// The first release had single-node clusters. Its stored data and log must
// still be readable.
func TestReadsTheSingleNodeFormat(t *testing.T) {
	f, err := os.Open("testdata/golden_single_node.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	replayed, disk, index := meta.New(), map[string][]byte{}, uint64(0)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		kind, rest, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		key, value, _ := strings.Cut(rest, " ")
		switch kind {
		case "command":
			index++
			replayed.Apply(index, []byte(rest))
		case "store":
			disk[key] = []byte(value)
			if err := loads(key, []byte(value)); err != nil {
				t.Errorf("%s: %v", lines.Text(), err)
			}
		case "delete":
			delete(disk, key)
		case "result":
			if _, err := meta.DecodeResult([]byte(rest)); errors.Is(err, meta.ErrCorrupt) {
				t.Errorf("%s: %v", rest, err)
			}
		}
	}
	if index < 10 || len(disk) < 8 {
		t.Fatalf("the golden file has %d commands and %d pairs", index, len(disk))
	}
	// Setting revisions and change indexes do not exist in the old form.
	changed := regexp.MustCompile(`Changed:\d+`)
	got, want := dump(restored(t, disk).View()), changed.ReplaceAllString(dump(replayed.View()), "Changed:0")
	if got = strings.Replace(got, "true 3 0 ", "true 3 2 ", 1); got != want {
		t.Errorf("restored\n%s\nreplayed\n%s", got, want)
	}
}

func TestPolicy(t *testing.T) {
	s := created(t)
	if p, set := s.View().Policy(); set || p != meta.DefaultPolicy {
		t.Fatalf("got %+v, %v before any was set", p, set)
	}
	want := meta.Policy{Replication: 5, MinMembers: 4}
	run(t, s, meta.PutPolicy(want))
	if p, set := s.View().Policy(); !set || p != want {
		t.Fatalf("got %+v, %v", p, set)
	}
	if run(t, s, meta.PutPolicy(want)).Changed {
		t.Error("the same policy again changed something")
	}
	for _, p := range []meta.Policy{{}, {Replication: 2, MinMembers: 1}, {Replication: 9, MinMembers: 1}, {Replication: 3}, {Replication: 3, MinMembers: meta.MaxMembers + 1}} {
		refused(t, s, meta.ErrInvalid, meta.PutPolicy(p))
	}
}

func TestSettingsHaveRevisions(t *testing.T) {
	s := created(t)
	run(t, s, meta.PutSetting("a", []byte("1")), meta.PutSetting("b", []byte("2")), meta.PutSetting("a", []byte("3")), meta.DeleteSetting("b"))
	a, _ := s.View().Setting("a")
	if _, has := s.View().Setting("b"); has || a.Revision != 3 || string(a.Value) != "3" || s.View().SettingRevision() != 4 {
		t.Fatalf("got %+v at revision %d", a, s.View().SettingRevision())
	}
}

// A request to leave stays valid until it is canceled, whatever happens to the
// node.
func TestLeaveRequestPersists(t *testing.T) {
	start := func(incarnation uint64, disk string) meta.Member {
		m := speaking("n2", incarnation, 1, 3)
		m.Disk = disk
		return m
	}
	leaving := func(t *testing.T, level sharding.ClusterVersion) *meta.State {
		s := created(t)
		if level > 1 {
			run(t, s, meta.RaiseClusterVersion(level, speaker("n1", 0, level)))
		} else {
			start = func(incarnation uint64, disk string) meta.Member {
				m := node("n2", "n2", incarnation)
				m.Disk = disk
				return m
			}
		}
		run(t, s, meta.Join(start(5, "d")))
		run(t, s, meta.SetStatus("n2", 5, meta.StatusUp))
		run(t, s, meta.SetStatus("n2", 5, meta.StatusLeaving))
		return s
	}
	status := func(t *testing.T, s *meta.State, want meta.MemberStatus) {
		t.Helper()
		if m, _ := s.View().Member("n2"); m.Status != want {
			t.Errorf("n2 is %s, not %s", m.Status, want)
		}
	}
	for name, commands := range map[string][][]byte{
		"heard again":               {meta.SetStatus("n2", 5, meta.StatusDown), meta.SetStatus("n2", 5, meta.StatusUp)},
		"down, and started anew":    {meta.SetStatus("n2", 5, meta.StatusDown), meta.Join(start(6, "d"))},
		"put down, started anew":    {meta.Down("n2"), meta.Join(start(6, "d"))},
		"on another disk":           {meta.Join(start(6, "other"))},
		"down, and on another disk": {meta.SetStatus("n2", 5, meta.StatusDown), meta.Join(start(6, "other"))},
	} {
		t.Run(name, func(t *testing.T) {
			s := leaving(t, 3)
			for _, c := range commands {
				run(t, s, c)
			}
			status(t, s, meta.StatusLeaving)
			loaded := meta.New()
			if err := loaded.Load(s.View().Index(), s.Dump()); err != nil || dump(loaded.View()) != dump(s.View()) {
				t.Fatalf("loaded: %v", err)
			}
			m, _ := s.View().Member("n2")
			run(t, s, meta.SetStatus("n2", 0, meta.StatusUp)) // the node is resumed, which cancels the request
			status(t, s, meta.StatusUp)
			run(t, s, meta.Join(start(m.Incarnation+1, m.Disk)))
			status(t, s, meta.StatusUp)
		})
	}
	// The previous release cannot read the request.
	s := leaving(t, 1)
	run(t, s, meta.SetStatus("n2", 5, meta.StatusDown))
	run(t, s, meta.SetStatus("n2", 5, meta.StatusUp))
	status(t, s, meta.StatusUp)
}
