package recovery

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/raftgroup/raftlog"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// kinds are the record kinds by the names of their golden files.
var kinds = map[string]byte{"checkpoint": wire.KindCheckpoint, "turn": wire.KindTurn, "cut": wire.KindTruncate, "create": wire.KindCreate, "remove": wire.KindRemove, "install": wire.KindInstall}

// golden is a payload written by package raftgroup.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func goldens(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for name := range kinds {
		out[name] = golden(t, name)
	}
	return out
}

func goldenConf() wire.Membership {
	return wire.Membership{Index: 9, State: &pb.ConfState{
		Voters: []uint64{101, 102}, Learners: []uint64{103}, VotersOutgoing: []uint64{101}, LearnersNext: []uint64{104}, AutoLeave: new(true),
	}}
}

func goldenEntries() []*pb.Entry {
	return []*pb.Entry{
		{Term: new(uint64(3)), Index: new(uint64(10)), Type: pb.EntryNormal.Enum()},
		{Term: new(uint64(3)), Index: new(uint64(11)), Type: pb.EntryNormal.Enum(), Data: []byte("data")},
		{Term: new(uint64(4)), Index: new(uint64(12)), Type: pb.EntryConfChangeV2.Enum(), Data: []byte{8, 1}},
	}
}

func goldenInstall() wire.InstallImage {
	i := wire.InstallImage{Index: 9, Term: 3}
	for b := range i.Digest {
		i.Digest[b] = byte(b)
	}
	return i
}

func TestGoldenBytesAreRead(t *testing.T) {
	b := goldens(t)
	r := newRecovery()
	r.begin(6, 201)
	for i, name := range []string{"checkpoint", "turn", "cut"} {
		kind := map[string]byte{"checkpoint": wire.KindCheckpoint, "turn": wire.KindTurn, "cut": wire.KindTruncate}[name]
		if err := r.record(wal.Position{Segment: 2, Offset: int64(i)}, kind, b[name]); err != nil {
			t.Fatal(name, err)
		}
	}
	g, err := r.groups[5].finish()
	if err != nil {
		t.Fatal(err)
	}
	if g.Replica != 101 || g.Hard != (wire.HardState{Term: 4, Vote: 102, Commit: 11}) || g.Log.TruncatedIndex() != 9 || g.Log.TruncatedTerm() != 3 || g.Log.Last() != 12 || r.watermark != 77 {
		t.Errorf("recovered %+v, log %d to %d", g, g.Log.TruncatedIndex(), g.Log.Last())
	}
	if conf := g.Image.Conf; !proto.Equal(conf.State, goldenConf().State) || conf.Index != 9 {
		t.Errorf("recovered members %v at %d", conf.State, conf.Index)
	}
	for i, e := range g.Log.All() {
		if !proto.Equal(e, goldenEntries()[i]) {
			t.Errorf("entry %v", e)
		}
	}
	if g.Generation != 2 || g.Image.Install != goldenInstall() || r.former[5] != (wire.FormerReplica{Replica: 99, Generation: 1}) || r.former[8] != (wire.FormerReplica{Replica: 301}) {
		t.Errorf("recovered generation %d, snapshot %v, former %v", g.Generation, g.Image.Install, r.former)
	}
	if err := r.record(wal.Position{Segment: 2, Offset: 9}, wire.KindRemove, b["remove"]); err != nil || r.groups[5] != nil || r.former[5] != (wire.FormerReplica{Replica: 101, Generation: 2}) {
		t.Errorf("removed: %v, former %v", err, r.former)
	}
	r = newRecovery()
	r.begin(5, 102)
	r.groups[5].image.Generation = 1
	if err := r.record(wal.Position{Segment: 1}, wire.KindInstall, b["install"]); err != nil {
		t.Fatal(err)
	}
	if g, err := r.groups[5].finish(); err != nil || g.Generation != 2 || g.Image.Install != goldenInstall() || g.Log.TruncatedIndex() != 9 || g.Hard != (wire.HardState{Term: 4, Vote: 0, Commit: 9}) || g.Image.Conf.Index != 9 {
		t.Errorf("installed %+v, %v", g, err)
	}
	first := golden(t, "checkpoint_v1")
	r = newRecovery()
	if err := r.record(wal.Position{Segment: 2}, wire.KindCheckpoint, first); err != nil || r.groups[5].image.Replica != 101 || r.groups[5].image.Generation != 0 {
		t.Errorf("version 1: %v", err)
	}
	r = newRecovery()
	if err := r.record(wal.Position{Segment: 1}, wire.KindCreate, b["create"]); err != nil {
		t.Fatal(err)
	}
	if g := r.groups[5].image; g.Replica != 103 || len(g.Conf.State.Voters) != 2 || len(g.Conf.State.Learners) != 1 {
		t.Errorf("created %+v", g)
	}
}

// TestTruncatedRecordsAreRejected truncates the log records at each length. No
// truncated record is decoded as a different record.
func TestTruncatedRecordsAreRejected(t *testing.T) {
	b := goldens(t)
	for name, kind := range kinds {
		for i := range len(b[name]) {
			r := newRecovery()
			switch name {
			case "create":
			case "install":
				r.begin(5, 102)
			default:
				r.begin(5, 101)
				r.begin(6, 201)
			}
			err := r.record(wal.Position{Segment: 1}, kind, b[name][:i])
			if err == nil && !(name == "turn" && isSectionEnd(b[name], i)) {
				t.Errorf("%s cut at %d and no error", name, i)
			} else if err != nil && !errors.Is(err, journal.ErrDamaged) {
				t.Errorf("%s cut at %d: %v", name, i, err)
			}
		}
	}
}

// isSectionEnd reports whether a section of a turn record ends at the offset.
// Such a truncation cannot be detected here, because sections fill a record up
// to its end; the write-ahead log verifies the length.
func isSectionEnd(b []byte, at int) bool {
	r := &wire.Reader{B: b[1:]}
	for len(r.B) > 0 && !r.Bad {
		if len(b)-len(r.B) == at {
			return true
		}
		r.Section()
	}
	return false
}

func FuzzLogRecord(f *testing.F) {
	for name, b := range goldens(f) {
		f.Add(kinds[name], b)
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		r := newRecovery()
		r.begin(5, 101).image.Conf = goldenConf()
		r.begin(6, 201).image.Conf = goldenConf()
		if err := r.record(wal.Position{Segment: 1}, kind, b); err != nil {
			return
		}
		for _, g := range r.groups {
			if g, err := g.finish(); err == nil && g.Hard.Commit > g.Log.Last() {
				t.Fatalf("commit %d in a log that ends at %d", g.Hard.Commit, g.Log.Last())
			}
		}
	})
}

// TestReplicaInfoHasMembersAsOfCommit: the members are those at the commit
// index, even if the recorded membership is older.
func TestReplicaInfoHasMembersAsOfCommit(t *testing.T) {
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
	g := Replica{Shard: 3, Replica: 1, Log: raftlog.New(0, 0), First: []sharding.ReplicaID{1}}
	g.Image.Conf = wire.Membership{State: &pb.ConfState{Voters: []uint64{1}, AutoLeave: new(false)}}
	add := func(kind pb.EntryType, data []byte) {
		g.Log.Append([]*pb.Entry{{Term: new(uint64(2)), Index: new(g.Log.Last() + 1), Type: kind.Enum(), Data: data}})
	}
	add(pb.EntryConfChangeV2, change(pb.ConfChangeTransitionAuto, one(pb.ConfChangeAddLearnerNode, 4)))
	add(pb.EntryNormal, []byte("x"))
	add(pb.EntryConfChangeV2, change(pb.ConfChangeTransitionJointExplicit, one(pb.ConfChangeAddNode, 4), one(pb.ConfChangeRemoveNode, 1)))
	add(pb.EntryConfChangeV2, change(pb.ConfChangeTransitionAuto))
	for commit, want := range []string{"[1] [] []", "[1] [4] []", "[1] [4] []", "[4] [] [1]", "[4] [] []"} {
		g.Hard = wire.HardState{Term: 2, Commit: uint64(commit)}
		r := &Recovered{Groups: []Replica{g}}
		got, err := r.Replicas()
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
