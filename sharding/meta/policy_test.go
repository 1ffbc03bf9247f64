package meta_test

import (
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// A cluster is created with the bootstrap node's policy, or not at all.
func TestClusterIsCreatedUnderAPolicy(t *testing.T) {
	f := founder
	f.Speaks = sharding.SupportedVersions
	want := meta.Policy{Replication: 5, MinMembers: 4, Rebalance: true, DeadAfter: time.Minute}
	s := meta.New()
	bad := want
	bad.DeadAfter = time.Second
	refused(t, s, meta.ErrInvalid, meta.CreateClusterUnder(bad, cluster, f))
	if _, created := s.View().Cluster(); created {
		t.Fatal("a cluster was created without its policy")
	}
	run(t, s, meta.CreateClusterUnder(want, cluster, f))
	loaded := meta.New()
	if err := loaded.Load(1, s.Dump()); err != nil {
		t.Fatal(err)
	}
	if p, set := loaded.View().Policy(); !set || p != want {
		t.Errorf("got %+v, %v", p, set)
	}
	if run(t, s, meta.CreateClusterUnder(want, cluster, f)).Changed {
		t.Error("the same command again changed something")
	}
	refused(t, meta.New(), meta.ErrClusterVersion, meta.CreateClusterUnder(want, cluster, founder))
}

// The previous release cannot read deadAfter.
func TestDeadAfterNeedsVersion2(t *testing.T) {
	s := created(t)
	p := meta.Policy{Replication: 3, MinMembers: 1, DeadAfter: time.Minute}
	refused(t, s, meta.ErrClusterVersion, meta.PutPolicy(p))
	run(t, s, meta.RaiseClusterVersion(2, speaker("n1", 0, 2)))
	run(t, s, meta.PutPolicy(p))
	p.DeadAfter = meta.MaxDeadAfter + 1
	refused(t, s, meta.ErrInvalid, meta.PutPolicy(p))
}

// Of two concurrent changes, the second change is rejected instead of undoing
// the first change. Repeating a change succeeds.
func TestConcurrentPolicyChangeIsRejected(t *testing.T) {
	s := created(t)
	p := meta.Policy{Replication: 3, MinMembers: 1}
	refused(t, s, meta.ErrClusterVersion, meta.ChangePolicy(meta.Policy{}, p))
	run(t, s, meta.RaiseClusterVersion(2, speaker("n1", 0, 2)))
	first, second := p, p
	first.Replication, second.MinMembers = 5, 2
	run(t, s, meta.ChangePolicy(meta.Policy{}, first))
	refused(t, s, meta.ErrConflict, meta.ChangePolicy(meta.Policy{}, second))
	if run(t, s, meta.ChangePolicy(meta.Policy{}, first)).Changed {
		t.Error("the same command again changed something")
	}
	both := first
	both.MinMembers = 2
	run(t, s, meta.ChangePolicy(first, both))
	refused(t, s, meta.ErrConflict, meta.ChangePolicy(first, second))
	if now, _ := s.View().Policy(); now != both {
		t.Errorf("got %+v, want %+v", now, both)
	}
}
