package meta_test

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// leave lets a node join and leave, and removes it.
func leave(t *testing.T, s *meta.State, m meta.Member) {
	t.Helper()
	j := run(t, s, meta.Join(m)).Joined
	run(t, s, meta.SetStatus(m.Node, 0, meta.StatusUp))
	run(t, s, meta.SetStatus(m.Node, 0, meta.StatusLeaving))
	run(t, s, meta.Retire(sharding.MetaShard, j.Replica))
	run(t, s, meta.Forget(sharding.MetaShard, j.Replica))
	run(t, s, meta.RemoveMember(m.Node))
}

// Former members are remembered until they join again, across restores, from
// cluster version VersionFormerMembers on.
func TestFormerMembersAreRemembered(t *testing.T) {
	for level, want := range map[sharding.ClusterVersion]bool{sharding.Version2: false, sharding.VersionFormerMembers: true} {
		s := created(t)
		run(t, s, meta.RaiseClusterVersion(level, speaker("n1", 0, sharding.MaxVersion)))
		leave(t, s, speaking("n2", 5, 1, sharding.MaxVersion))
		if got := s.View().HasLeft("n2"); got != want || s.View().HasLeft("n1") || s.View().HasLeft("n3") {
			t.Errorf("level %d: n2 has left: %v", level, got)
		}
		restored := meta.New()
		if err := restored.Load(s.View().Index(), s.Dump()); err != nil {
			t.Fatal(err)
		}
		if got := restored.View().HasLeft("n2"); got != want {
			t.Errorf("level %d, restored: n2 has left: %v", level, got)
		}
		again := speaking("n2", 6, 1, sharding.MaxVersion)
		again.Disk = "another"
		run(t, restored, meta.Join(again))
		if restored.View().HasLeft("n2") {
			t.Errorf("level %d: a member has left", level)
		}
	}
}

// The newest incarnation of a node stays known after the node is removed, for
// whatever reason, because an older copy of its disk may start afterwards.
func TestLastStartIsKnownAfterRemoval(t *testing.T) {
	for name, drop := range map[string]func(*testing.T, *meta.State, meta.Member){"left": leave, "downed": remove, "dead": die} {
		s := created(t)
		run(t, s, meta.RaiseClusterVersion(sharding.VersionFormerMembers, speaker("n1", 0, sharding.MaxVersion)))
		if got := s.View().LastStart("n2"); got != 0 {
			t.Errorf("%s: a node that was never a member has start %d", name, got)
		}
		run(t, s, meta.Join(speaking("n2", 5, 1, sharding.MaxVersion)))
		if got := s.View().LastStart("n2"); got != 5 {
			t.Errorf("%s: the member has start %d, want 5", name, got)
		}
		drop(t, s, speaking("n2", 7, 1, sharding.MaxVersion))
		if got := s.View().LastStart("n2"); got != 7 {
			t.Errorf("%s: the former member has start %d, want 7", name, got)
		}
		again := speaking("n2", 6, 1, sharding.MaxVersion)
		again.Disk = "another"
		refused(t, s, meta.ErrConflict, meta.Join(again))
		again.Incarnation = 9
		run(t, s, meta.Join(again))
		if got := s.View().LastStart("n2"); got != 9 {
			t.Errorf("%s: the node that joined again has start %d, want 9", name, got)
		}
	}
}

// die lets a node join, marks it as dead and removes it.
func die(t *testing.T, s *meta.State, m meta.Member) {
	t.Helper()
	j := run(t, s, meta.Join(m)).Joined
	run(t, s, meta.SetStatus(m.Node, 0, meta.StatusDown))
	run(t, s, meta.Retire(sharding.MetaShard, j.Replica))
	run(t, s, meta.Forget(sharding.MetaShard, j.Replica))
	run(t, s, meta.RemoveMember(m.Node))
}

func TestFormerMembersAreLimited(t *testing.T) {
	s := created(t)
	run(t, s, meta.RaiseClusterVersion(sharding.VersionFormerMembers, speaker("n1", 0, sharding.MaxVersion)))
	for i := range meta.MaxLeft + 2 {
		leave(t, s, speaking(fmt.Sprintf("m%04d", i), uint64(i+1), 1, sharding.MaxVersion))
	}
	for name, want := range map[sharding.NodeID]bool{"m0000": false, "m0001": false, "m0002": true, "m1025": true} {
		if s.View().HasLeft(name) != want {
			t.Errorf("%s has left: %v", name, !want)
		}
	}
	if stored := s.Dump(); len(stored) > meta.MaxLeft+10 {
		t.Errorf("%d pairs", len(stored))
	}
}

// A node that was asked to leave and has left can only join with a new disk. A
// node that was removed because it was dead may join with its old disk.
func TestNodeCannotRejoinWithTheDiskItLeftWith(t *testing.T) {
	s := created(t)
	run(t, s, meta.RaiseClusterVersion(sharding.VersionFormerMembers, speaker("n1", 0, sharding.MaxVersion)))
	n2, n3 := speaking("n2", 5, 1, sharding.MaxVersion), speaking("n3", 5, 1, sharding.MaxVersion)
	leave(t, s, n2)
	j := run(t, s, meta.Join(n3)).Joined
	run(t, s, meta.SetStatus("n3", 0, meta.StatusDown), meta.Retire(sharding.MetaShard, j.Replica), meta.Forget(sharding.MetaShard, j.Replica), meta.RemoveMember("n3"))
	if got := fmt.Sprint(s.View().LeftNodes()); got != fmt.Sprint([]meta.LeftNode{{Node: "n2", Incarnation: 5, Disk: n2.Disk}, {Node: "n3", Incarnation: 5}}) {
		t.Errorf("left: %s", got)
	}
	restored := meta.New()
	if err := restored.Load(s.View().Index(), s.Dump()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*meta.State{s, restored} {
		n2.Incarnation, n3.Incarnation = 6, 6
		refused(t, s, meta.ErrLeft, meta.Join(n2)) // with the disk that it left with
		refused(t, s, meta.ErrConflict, meta.Join(n2))
		run(t, s, meta.Join(n3))
		again := n2
		again.Disk = "another"
		run(t, s, meta.Join(again))
		if left := s.View().LeftNodes(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}
