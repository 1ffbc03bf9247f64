package raftgroup

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/journal/raftgroup/offline"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// bereft returns a shard of three voters. The first voter lags, and the other
// two voters are lost, together with the entries that the first voter does not
// have.
func bereft(t testing.TB) *drill {
	d := newEmptyDrill(t, 5)
	for _, n := range d.nodes[:3] {
		n.create(GroupConfig{Shard: 1, Replica: d.replica(1, n.i), Voters: d.replicas(1)[:3]})
	}
	d.lead(1, 1)
	d.write(1, "kept", 0, 1, 2)
	for _, i := range []int{1, 2} {
		d.cut[[2]int{i, 0}], d.cut[[2]int{0, i}] = true, true
	}
	d.write(1, "lost", 1, 2)
	d.nodes[1].up, d.nodes[2].up = false, false
	return d
}

// makeSole makes the stopped node's replica of shard 1 the only member.
func makeSole(fs *disktest.Crashable) (made offline.Sole, err error) {
	err = stopped(fs, func(rec *recovery.Recovered, log *wal.Log) (err error) {
		made, err = offline.MakeSole(rec, log, 1, "by hand")
		return err
	})
	return made, err
}

// TestSoleReplicaLeadsOnceReleased: the replica leads alone, but not before its release.
// Only the entries in its own log remain, and a replica that is built from that
// log has the same members.
func TestSoleReplicaLeadsOnceReleased(t *testing.T) {
	d := bereft(t)
	n := d.nodes[0]
	for range 60 {
		d.beat()
	}
	if d.leader(1) != nil {
		t.Fatal("one of three leads")
	}
	term := n.sink.leader(1).Term
	n.fs.Kill()
	made, err := makeSole(n.fs)
	if err != nil || made.Replica != 10 || !slices.Equal(made.Removed, []sharding.ReplicaID{11, 12}) {
		t.Fatalf("%+v, %v", made, err)
	}
	again, err := makeSole(n.fs)
	if err != nil || len(again.Removed) != 0 {
		t.Fatalf("again: %+v, %v", again, err)
	}
	n.withheld = []sharding.ShardID{1}
	n.restart()
	for range 60 {
		d.beat()
	}
	if d.leader(1) != nil {
		t.Fatal("it leads before it is released")
	}
	n.driver.Core().Release(1)
	d.until("leader", 5, func() bool { return d.leader(1) == n })
	if now := n.sink.leader(1).Term; now <= term+1<<20-1 {
		t.Errorf("it leads in term %d, the others may have led in more than %d", now, term)
	}
	d.write(1, "after", 0)
	if got := n.machine.data(1); !slices.Equal(got, []string{"kept", "after"}) {
		t.Errorf("it has %q", got)
	}
	fresh := d.nodes[4]
	fresh.create(GroupConfig{Shard: 1, Replica: 14, Voters: d.replicas(1)[:3]})
	for _, change := range []Change{{AddLearners: []sharding.ReplicaID{14}}, {AddVoters: []sharding.ReplicaID{14}}} {
		if err := n.driver.Core().ChangeMembers(1, n.sink.leader(1).Term, change); err != nil {
			t.Fatal(err)
		}
		d.settle()
		d.write(1, fmt.Sprint(change), 0, 4)
	}
	if got, want := fresh.group(1).conf.State.String(), n.group(1).conf.State.String(); got != want || len(fresh.group(1).conf.State.GetVoters()) != 2 {
		t.Errorf("the members are %s on the new node, %s on the old one", got, want)
	}
	d.lead(1, 4)
	d.write(1, "led by the new one", 0, 4)
	if got := fresh.machine.data(1); slices.Contains(got, "lost") || got[0] != "kept" {
		t.Errorf("the new one has %q", got)
	}
}

// TestMakeSoleCanBeRepeatedAfterPowerCut: whichever disk operation fails, the log has either
// the old or the new state, and repeating MakeSole completes the change.
func TestMakeSoleCanBeRepeatedAfterPowerCut(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 4
	}
	for at := 0; ; at += step {
		fs := bereft(t).nodes[0].fs
		fs.Kill()
		fs.CutAfter(at)
		_, cut := makeSole(fs)
		fs.CutAfter(1 << 20)
		if cut != nil {
			fs.Crash()
			if _, err := makeSole(fs); err != nil {
				t.Fatalf("cut at operation %d: the repetition: %v", at, err)
			}
		}
		err := stopped(fs, func(rec *recovery.Recovered, _ *wal.Log) error {
			if g := rec.Groups[0]; !slices.Equal(g.Voters, []sharding.ReplicaID{10}) || g.Commit != g.LastIndex {
				t.Errorf("cut at operation %d: %+v", at, g)
			}
			return nil
		})
		if err != nil {
			t.Fatalf("cut at operation %d: %v", at, err)
		}
		if cut == nil {
			if at < 3 {
				t.Errorf("only %d operations of the disk", at)
			}
			return
		}
	}
}

func TestMakeSoleRejectsEmptyReplica(t *testing.T) {
	n := newEmptyDrill(t, 1).nodes[0]
	n.create(GroupConfig{Shard: 1, Replica: 10, Voters: []sharding.ReplicaID{10, 11, 12}})
	n.fs.Kill()
	if made, err := makeSole(n.fs); err == nil {
		t.Errorf("a replica that has nothing: %+v", made)
	}
	err := stopped(n.fs, func(rec *recovery.Recovered, log *wal.Log) error {
		_, err := offline.MakeSole(rec, log, 2, "")
		return err
	})
	if !errors.Is(err, offline.ErrNoReplica) {
		t.Errorf("a shard that is not here: %v", err)
	}
}
