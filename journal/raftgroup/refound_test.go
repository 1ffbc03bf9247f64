package raftgroup

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// onePair is a state of one pair.
type onePair struct{ given bool }

func (p *onePair) Next() (key, value []byte, err error) {
	if p.given {
		return nil, nil, io.EOF
	}
	p.given = true
	return []byte{1}, []byte("state"), nil
}

func (p *onePair) Close() error { return nil }

func foundingOf(shard sharding.ShardID, replica sharding.ReplicaID) Founding {
	return Founding{
		Shard: shard, Replica: replica, Index: 70, Term: 9,
		State: statefile.NewWriter(statefile.Header{Shard: shard, Index: 70, Term: 9}, &onePair{}),
	}
}

// stopped opens the log of a stopped node and does something to it.
func stopped(fs *disk.Crashable, do func(*Recovered, *wal.Log) error) error {
	log, err := wal.Open(fs, "wal", wal.Options{SegmentBytes: 8 << 10, Rand: func() uint64 { return 3 }})
	if err != nil {
		return err
	}
	rec, err := Recover(log)
	if err == nil {
		err = do(rec, log)
	}
	return errors.Join(err, log.Close())
}

func refound(fs *disk.Crashable, replica sharding.ReplicaID) error {
	return stopped(fs, func(rec *Recovered, log *wal.Log) error {
		return Refound(rec, log, fs, "snapshots", foundingOf(1, replica))
	})
}

// worked is a node with two groups and some work behind it.
func worked(t *testing.T, seed int) *lonely {
	t.Helper()
	n := &lonely{fs: disk.NewCrashable(rand.New(rand.NewPCG(uint64(seed), 5))), machine: newMachine()}
	if err := errors.Join(n.open(), n.work(), n.log.Close()); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRefoundIsInterrupted cuts the power at each operation of the disk in
// turn; a repetition always comes to the same end: the new replica alone with
// its state, and the other group as it was.
func TestRefoundIsInterrupted(t *testing.T) {
	var other RecoveredGroup
	for at := 0; ; at++ {
		n := worked(t, at)
		n.fs.CutAfter(at)
		cut := refound(n.fs, 500)
		n.fs.CutAfter(1 << 20)
		if cut != nil {
			n.fs.Crash()
			for range 2 {
				if err := refound(n.fs, 500); err != nil {
					t.Fatalf("cut at operation %d: the repetition: %v", at, err)
				}
			}
		}
		err := stopped(n.fs, func(rec *Recovered, _ *wal.Log) error {
			g := rec.Groups[0]
			if g.Replica != 500 || g.Snapshot != 70 || g.CutIndex != 70 || g.LastIndex != 70 || g.Commit != 70 || g.Term != 9 || !slices.Equal(g.Voters, []sharding.ReplicaID{500}) || len(g.Learners) > 0 {
				t.Errorf("cut at operation %d: %+v", at, g)
			}
			if at == 0 {
				other = rec.Groups[1]
			}
			if o := rec.Groups[1]; o.Replica != other.Replica || o.LastIndex != other.LastIndex || o.Generation != 0 {
				t.Errorf("cut at operation %d: the other group is %+v, it was %+v", at, o, other)
			}
			life := rec.Lives(n.fs, "snapshots")[0]
			f, err := life.Install.Open()
			if err != nil {
				return err
			}
			defer f.Close()
			r, err := statefile.NewReader(f, nil)
			return errors.Join(err, r.Verify(life.Install.Digest))
		})
		if err != nil {
			t.Fatalf("cut at operation %d: %v", at, err)
		}
		if cut == nil {
			if at < 5 {
				t.Errorf("only %d operations of the disk", at)
			}
			return
		}
	}
}

// What was begun anew cannot be begun anew with less, and runs.
func TestRefoundOnlyGoesForward(t *testing.T) {
	n := worked(t, 1)
	for _, step := range []struct {
		replica sharding.ReplicaID
		want    error
	}{{50, ErrRefounded}, {500, nil}, {400, ErrRefounded}, {600, nil}, {500, ErrRefounded}} {
		if err := refound(n.fs, step.replica); !errors.Is(err, step.want) {
			t.Errorf("replica %d: %v, want %v", step.replica, err, step.want)
		}
	}
	var was sharding.ReplicaID
	discard := func(rec *Recovered, log *wal.Log) (err error) {
		was, err = Discard(rec, log, 1)
		return err
	}
	for _, want := range []sharding.ReplicaID{600, 0} {
		if err := stopped(n.fs, discard); err != nil || was != want {
			t.Errorf("discarded %d: %v, want %d", was, err, want)
		}
	}
	if err := refound(n.fs, 600); !errors.Is(err, ErrRefounded) {
		t.Errorf("a removed replica came back: %v", err)
	}
	err := stopped(n.fs, func(rec *Recovered, _ *wal.Log) error {
		if len(rec.Groups) != 1 || rec.Groups[0].Shard != 2 || rec.Removed() != 600 {
			t.Errorf("left: %+v, removed up to %d", rec.Groups, rec.Removed())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The members that a log records are those as of its commit, whatever part of
// that is written as membership.
func TestRemainsFollowTheCommit(t *testing.T) {
	change := func(transition pb.ConfChangeTransition, changes ...*pb.ConfChangeSingle) []byte {
		data, err := proto.Marshal(&pb.ConfChangeV2{Transition: transition.Enum(), Changes: changes})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	one := func(kind pb.ConfChangeType, id uint64) *pb.ConfChangeSingle {
		return &pb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(id)}
	}
	g := newGroup(3, 1)
	g.conf = membership{state: &pb.ConfState{Voters: []uint64{1}, AutoLeave: new(false)}}
	add := func(kind pb.EntryType, data []byte) {
		g.log.append([]*pb.Entry{{Term: new(uint64(2)), Index: new(g.log.last() + 1), Type: kind.Enum(), Data: data}})
	}
	add(pb.EntryConfChangeV2, change(pb.ConfChangeTransitionAuto, one(pb.ConfChangeAddLearnerNode, 4)))
	add(pb.EntryNormal, []byte("x"))
	add(pb.EntryConfChangeV2, change(pb.ConfChangeTransitionJointExplicit, one(pb.ConfChangeAddNode, 4), one(pb.ConfChangeRemoveNode, 1)))
	add(pb.EntryConfChangeV2, change(pb.ConfChangeTransitionAuto))
	for commit, want := range []string{"[1] [] []", "[1] [4] []", "[1] [4] []", "[4] [] [1]", "[4] [] []"} {
		g.hard = hardState{term: 2, commit: uint64(commit)}
		r := &Recovered{groups: []*group{g}, first: [][]sharding.ReplicaID{{1}}}
		got, err := r.Remains()
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(got[0].Voters, got[0].Learners, got[0].Outgoing); text != want || got[0].Index != uint64(commit) || !slices.Equal(got[0].First, []sharding.ReplicaID{1}) {
			t.Errorf("commit %d: %+v, want %s", commit, got[0], want)
		}
		if n := len(r.Entries(3)); n != 4 {
			t.Errorf("%d entries", n)
		}
	}
}
