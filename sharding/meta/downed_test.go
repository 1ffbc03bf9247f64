package meta_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// withDowned returns a cluster of version 2 whose member n2, at incarnation 5,
// was declared down and removed.
func withDowned(t *testing.T) *meta.State {
	t.Helper()
	s := created(t)
	run(t, s, meta.RaiseClusterVersion(2, speaker("n1", 0, 2)))
	remove(t, s, speaking("n2", 5, 1, 2))
	return s
}

// remove lets a node join, declares it down and removes it.
func remove(t *testing.T, s *meta.State, m meta.Member) {
	t.Helper()
	j := run(t, s, meta.Join(m)).Joined
	run(t, s, meta.Down(m.Node))
	run(t, s, meta.Retire(sharding.MetaShard, j.Replica))
	run(t, s, meta.Forget(sharding.MetaShard, j.Replica))
	run(t, s, meta.RemoveMember(m.Node))
}

func TestDownedStartsCannotJoin(t *testing.T) {
	s := withDowned(t)
	if down := s.View().DownedStarts(); len(down) != 1 || down[0] != (meta.DownedStart{Node: "n2", Incarnation: 5}) {
		t.Fatalf("put down: %v", down)
	}
	for _, start := range []uint64{4, 5} {
		refused(t, s, meta.ErrNodeDowned, meta.Join(speaking("n2", start, 1, 2)))
		refused(t, s, meta.ErrConflict, meta.Join(speaking("n2", start, 1, 2)))
		if !s.View().IsDowned("n2", start) {
			t.Errorf("start %d is not known as put down", start)
		}
	}
	loaded := meta.New()
	if err := loaded.Load(s.View().Index(), s.Dump()); err != nil || dump(loaded.View()) != dump(s.View()) {
		t.Fatalf("loaded: %v", err)
	}
	refused(t, loaded, meta.ErrNodeDowned, meta.Join(speaking("n2", 5, 1, 2)))

	// A new incarnation joins, and can be declared down and removed in turn.
	if s.View().IsDowned("n2", 6) {
		t.Error("a later start is taken for put down")
	}
	if j := run(t, s, meta.Join(speaking("n2", 6, 1, 2))).Joined; !j.Fresh || j.Member.Status != meta.StatusJoining {
		t.Errorf("a new start: %+v", j)
	}
	if down := s.View().DownedStarts(); len(down) != 0 {
		t.Errorf("after a new start: %v", down)
	}
	run(t, s, meta.Down("n2"))
	if !s.View().IsDowned("n2", 6) || s.View().IsDowned("n2", 7) {
		t.Error("a member that is put down is not known as that")
	}
}

// A node that the coordinator considered dead can rejoin without an operator.
func TestOnlyOperatorDownIsRemembered(t *testing.T) {
	s := created(t)
	run(t, s, meta.RaiseClusterVersion(2, speaker("n1", 0, 2)))
	j := run(t, s, meta.Join(speaking("n2", 5, 1, 2))).Joined
	run(t, s, meta.SetStatus("n2", 5, meta.StatusDown))
	run(t, s, meta.Retire(sharding.MetaShard, j.Replica))
	run(t, s, meta.Forget(sharding.MetaShard, j.Replica))
	run(t, s, meta.RemoveMember("n2"))
	run(t, s, meta.Join(speaking("n2", 5, 1, 2)))
}

// The previous release cannot read the key, so it is not written at version 1.
func TestDownedStartsNeedVersion2(t *testing.T) {
	s := created(t)
	remove(t, s, node("n2", "n2", 5))
	if down := s.View().DownedStarts(); len(down) != 0 {
		t.Errorf("level 1 keeps %v", down)
	}
	run(t, s, meta.Join(node("n2", "n2", 5)))
}

func TestDownedStartsAreLimited(t *testing.T) {
	s := created(t)
	run(t, s, meta.RaiseClusterVersion(2, speaker("n1", 0, 2)))
	for i := range meta.MaxDownedStarts + 2 {
		name := fmt.Sprintf("m%04d", i)
		remove(t, s, speaking(name, uint64(i+1), 1, 2))
	}
	down := s.View().DownedStarts()
	if len(down) != meta.MaxDownedStarts || down[0].Node != "m0002" {
		t.Errorf("%d are kept, from %v on", len(down), down[0])
	}
	if stored := s.Dump(); len(stored) > meta.MaxDownedStarts+10 {
		t.Errorf("%d pairs", len(stored))
	}
}

func TestInvalidStoredDownedStartsAreRejected(t *testing.T) {
	for value, want := range map[string]error{
		`{"v":1,"value":{"incarnation":0}}`:         meta.ErrCorrupt,
		`{"v":1,"value":{"incarnation":1,"by":""}}`: meta.ErrUnsupported,
	} {
		if err := created(t).Load(7, []meta.KV{{Key: []byte("down/n2"), Value: []byte(value)}}); !errors.Is(err, want) {
			t.Errorf("%s: %v", value, err)
		}
	}
}
