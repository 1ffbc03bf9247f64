package raftgroup

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

var update = flag.Bool("rewrite", false, "rewrite the golden files")

func goldenConf() membership {
	return membership{index: 9, state: &pb.ConfState{
		Voters: []uint64{101, 102}, Learners: []uint64{103}, VotersOutgoing: []uint64{101}, LearnersNext: []uint64{104}, AutoLeave: new(true),
	}}
}

func goldenEntries() []*pb.Entry {
	return []*pb.Entry{
		{Term: new(uint64(3)), Index: new(uint64(10)), Type: pb.EntryNormal.Enum()},
		{Term: new(uint64(3)), Index: new(uint64(11)), Type: pb.EntryNormal.Enum(), Data: []byte("data")},
		{Term: new(uint64(4)), Index: new(uint64(12)), Type: pb.EntryConfChangeV2.Enum(), Data: []byte{1, 2}},
	}
}

// goldens are one payload of each kind, built by the code that writes them.
func goldens() map[string][]byte {
	conf := goldenConf()
	g := newGroup(5, 101)
	g.written = groupImage{shard: 5, replica: 101, hard: hardState{4, 102, 11}, cut: 9, cutTerm: 3, conf: conf, generation: 2, install: goldenInstall()}
	c := &Core{watermark: 77, order: []*group{g}, groups: map[sharding.ShardID]*group{5: g}, former: formerLives{5: {99, 1}, 8: {301, 0}}}
	in := &incoming{SnapshotHeader: goldenHeader(), digest: goldenInstall().digest}
	adopting := newGroup(5, 102)
	adopting.hard, adopting.generation, adopting.incoming = hardState{4, 0, 11}, 1, in
	install := (&Core{installs: []*group{adopting}}).InstallRecord()
	remove, _, err := c.RemoveRecord([]ReplicaRef{{5, 101}})
	if err != nil {
		panic(err)
	}
	header := goldenHeader()
	turn := appendSection([]byte{payloadVersion}, &section{shard: 5, replica: 101, hard: &hardState{4, 102, 11}, conf: &conf, first: 10, ents: goldenEntries()})
	turn = appendSection(turn, &section{shard: 6, replica: 201, first: 1, ents: goldenEntries()[:1]})
	cut := le.AppendUint32(le.AppendUint64([]byte{payloadVersion}, 77), 1)
	cut = appendCut(cut, cutImage{5, 101, 9, 3})
	create, err := (&Core{}).CreateRecord([]GroupConfig{{Shard: 5, Replica: 103, Voters: replicas([]uint64{101, 102}), Learners: replicas([]uint64{103})}})
	if err != nil {
		panic(err)
	}
	return map[string][]byte{
		"remove":     bytes.Clone(remove),
		"install":    install,
		"snapshot":   header.append(nil),
		"checkpoint": c.Checkpoint(nil),
		"turn":       turn,
		"cut":        cut,
		"create":     create,
		"frame":      EncodeFrame(goldenMessages()),
	}
}

func goldenInstall() installImage {
	i := installImage{index: 9, term: 3}
	for b := range i.digest {
		i.digest[b] = byte(b)
	}
	return i
}

func goldenHeader() SnapshotHeader {
	return SnapshotHeader{Shard: 5, From: 101, To: 102, Term: 4, Index: 9, IndexTerm: 3, members: goldenConf()}
}

func goldenMessages() []Message {
	return []Message{
		{Shard: 5, Raft: &pb.Message{Type: pb.MsgApp.Enum(), From: new(uint64(101)), To: new(uint64(102)), Term: new(uint64(4)),
			LogTerm: new(uint64(3)), Index: new(uint64(9)), Commit: new(uint64(8)), RejectHint: new(uint64(0)), Entries: goldenEntries()}},
		{Shard: 6, Raft: &pb.Message{Type: pb.MsgAppResp.Enum(), From: new(uint64(201)), To: new(uint64(202)), Term: new(uint64(7)),
			LogTerm: new(uint64(6)), Index: new(uint64(20)), Commit: new(uint64(0)), RejectHint: new(uint64(15)), Reject: new(true)}},
		{Shard: 6, Raft: &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(202)), To: new(uint64(201)), Term: new(uint64(7)),
			Commit: new(uint64(19)), Context: []byte("12345678")}},
		{Shard: 300, Raft: &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: new(uint64(201)), To: new(uint64(202)), Term: new(uint64(7))}},
		{Shard: 6, note: noteSleep, Raft: &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(202)), To: new(uint64(201)), Term: new(uint64(7)),
			Commit: new(uint64(19))}},
		{Shard: 6, note: noteWake, Raft: &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: new(uint64(201)), To: new(uint64(202)), Term: new(uint64(7))}},
	}
}

func TestGoldenBytes(t *testing.T) {
	for name, got := range goldens() {
		path := filepath.Join("testdata", name+".hex")
		if *update {
			var b strings.Builder
			for line := got; len(line) > 0; line = line[min(32, len(line)):] {
				fmt.Fprintf(&b, "%x\n", line[:min(32, len(line))])
			}
			if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: wrote\n%x\nwant\n%x", name, got, want)
		}
	}
}

func TestGoldenBytesAreRead(t *testing.T) {
	b := goldens()
	r := newRecovery()
	r.begin(6, 201)
	for i, name := range []string{"checkpoint", "turn", "cut"} {
		kind := map[string]byte{"checkpoint": kindCheckpoint, "turn": kindTurn, "cut": kindCut}[name]
		if err := r.record(wal.Position{Segment: 2, Offset: int64(i)}, kind, b[name]); err != nil {
			t.Fatal(name, err)
		}
	}
	g, err := r.groups[5].finish()
	if err != nil {
		t.Fatal(err)
	}
	if g.replica != 101 || g.hard != (hardState{4, 102, 11}) || g.log.cut != 9 || g.log.cutTerm != 3 || g.log.last() != 12 || r.watermark != 77 {
		t.Errorf("recovered %+v, log %d to %d", g, g.log.cut, g.log.last())
	}
	if !proto.Equal(g.conf.state, goldenConf().state) || g.conf.index != 9 {
		t.Errorf("recovered members %v at %d", g.conf.state, g.conf.index)
	}
	for i, e := range g.log.ents {
		if !proto.Equal(e, goldenEntries()[i]) {
			t.Errorf("entry %v", e)
		}
	}
	if g.generation != 2 || g.install != goldenInstall() || r.former[5] != (formerLife{99, 1}) || r.former[8] != (formerLife{301, 0}) {
		t.Errorf("recovered life %d, snapshot %v, former %v", g.generation, g.install, r.former)
	}
	if err := r.record(wal.Position{Segment: 2, Offset: 9}, kindRemove, b["remove"]); err != nil || r.groups[5] != nil || r.former[5] != (formerLife{101, 2}) {
		t.Errorf("removed: %v, former %v", err, r.former)
	}
	r = newRecovery()
	r.begin(5, 102)
	r.groups[5].g.generation = 1
	if err := r.record(wal.Position{Segment: 1}, kindInstall, b["install"]); err != nil {
		t.Fatal(err)
	}
	if g, err := r.groups[5].finish(); err != nil || g.generation != 2 || g.install != goldenInstall() || g.log.cut != 9 || g.hard != (hardState{4, 0, 9}) || g.conf.index != 9 {
		t.Errorf("installed %+v, %v", g, err)
	}
	if h, err := readSnapshotHeader(bytes.NewReader(b["snapshot"])); err != nil || !reflect.DeepEqual(h.append(nil), b["snapshot"]) || h.Index != 9 || h.members.index != 9 {
		t.Errorf("header %+v, %v", h, err)
	}
	old, err := os.ReadFile(filepath.Join("testdata", "checkpoint_v1.hex"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := hex.DecodeString(strings.ReplaceAll(string(old), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	r = newRecovery()
	if err := r.record(wal.Position{Segment: 2}, kindCheckpoint, first); err != nil || r.groups[5].g.replica != 101 || r.groups[5].g.generation != 0 {
		t.Errorf("version 1: %v", err)
	}
	r = newRecovery()
	if err := r.record(wal.Position{Segment: 1}, kindCreate, b["create"]); err != nil {
		t.Fatal(err)
	}
	if g := r.groups[5].g; g.replica != 103 || len(g.conf.state.Voters) != 2 || len(g.conf.state.Learners) != 1 {
		t.Errorf("created %+v", g)
	}
	var got []Message
	if err := DecodeFrame(b["frame"], func(m Message) { got = append(got, m) }); err != nil {
		t.Fatal(err)
	}
	for i, m := range goldenMessages() {
		if got[i].Shard != m.Shard || !proto.Equal(got[i].Raft, m.Raft) {
			t.Errorf("message %d: %v", i, got[i].Raft)
		}
	}
}

// TestDamageIsRefused flips each bit and cuts each length of a frame, and cuts
// each length of the log records: nothing of it is taken for something else.
func TestDamageIsRefused(t *testing.T) {
	b := goldens()
	frame := b["frame"]
	for i := range frame {
		for bit := range 8 {
			bad := bytes.Clone(frame)
			bad[i] ^= 1 << bit
			if err := DecodeFrame(bad, func(Message) { t.Fatalf("a message of a frame with bit %d of byte %d flipped", bit, i) }); err == nil {
				t.Fatalf("bit %d of byte %d flipped and no error", bit, i)
			}
		}
		if err := DecodeFrame(frame[:i], func(Message) {}); err == nil && i > frameHeadBytes {
			t.Fatalf("frame cut at %d and no error", i)
		}
	}
	kinds := map[string]byte{"checkpoint": kindCheckpoint, "turn": kindTurn, "cut": kindCut, "create": kindCreate, "remove": kindRemove, "install": kindInstall}
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
			} else if err != nil && !IsDamage(err) {
				t.Errorf("%s cut at %d: %v", name, i, err)
			}
		}
	}
	if _, _, err := open(kindTurn, []byte{payloadVersion + 1}); !errors.Is(err, journal.ErrUnsupported) {
		t.Errorf("a later version: %v", err)
	}
}

// isSectionEnd: sections follow each other to the record's end, whose length
// the log checks.
func isSectionEnd(b []byte, at int) bool {
	r := &reader{b: b[1:]}
	for len(r.b) > 0 && !r.bad {
		if len(b)-len(r.b) == at {
			return true
		}
		r.section()
	}
	return false
}

func TestFrameRefusesWhatRaftWouldNot(t *testing.T) {
	base := func() *pb.Message { return proto.Clone(goldenMessages()[0].Raft).(*pb.Message) }
	tests := map[string]func(m *pb.Message){
		"local message":        func(m *pb.Message) { m.Type, m.Entries = pb.MsgHup.Enum(), nil },
		"snapshot":             func(m *pb.Message) { m.Type, m.Entries = pb.MsgSnap.Enum(), nil },
		"forwarded proposal":   func(m *pb.Message) { m.Type = pb.MsgProp.Enum() },
		"unknown type":         func(m *pb.Message) { m.Type, m.Entries = pb.MessageType(77).Enum(), nil },
		"from nobody":          func(m *pb.Message) { m.From = new(uint64(0)) },
		"to itself":            func(m *pb.Message) { m.To = m.From },
		"no term":              func(m *pb.Message) { m.Term, m.Entries, m.LogTerm = new(uint64(0)), nil, nil },
		"entry of the future":  func(m *pb.Message) { m.Entries[2].Term = new(uint64(5)) },
		"entry before its log": func(m *pb.Message) { m.Entries[0].Term = new(uint64(2)) },
		"entries in a vote":    func(m *pb.Message) { m.Type = pb.MsgVote.Enum() },
	}
	for name, change := range tests {
		m := base()
		change(m)
		if err := DecodeFrame(EncodeFrame([]Message{{Shard: 5, Raft: m}}), func(Message) {}); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := DecodeFrame(EncodeFrame([]Message{{Shard: 5, Raft: base()}}), func(Message) {}); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeFrame(f *testing.F) {
	f.Add(goldens()["frame"])
	f.Add(beginFrame(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= frameHeadBytes {
			endFrame(b) // a right checksum, to reach what is behind it
		}
		var got []Message
		if err := DecodeFrame(b, func(m Message) { got = append(got, m) }); err != nil {
			return
		}
		again := EncodeFrame(got)
		if !bytes.Equal(again, b) {
			t.Fatalf("decoded and encoded:\n%x\n%x", b, again)
		}
	})
}

func FuzzLogRecord(f *testing.F) {
	for name, b := range goldens() {
		f.Add(map[string]byte{"checkpoint": kindCheckpoint, "turn": kindTurn, "cut": kindCut, "create": kindCreate, "remove": kindRemove, "install": kindInstall}[name], b)
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		r := newRecovery()
		r.begin(5, 101).g.conf = goldenConf()
		r.begin(6, 201).g.conf = goldenConf()
		if err := r.record(wal.Position{Segment: 1}, kind, b); err != nil {
			return
		}
		for _, g := range r.groups {
			if g, err := g.finish(); err == nil && g.hard.commit > g.log.last() {
				t.Fatalf("commit %d in a log that ends at %d", g.hard.commit, g.log.last())
			}
		}
	})
}

func TestSplitSectionsAreStatesOfTheirOwn(t *testing.T) {
	s := section{shard: 5, replica: 101, hard: &hardState{4, 102, 12}, first: 10}
	for i := range 20 {
		s.ents = append(s.ents, &pb.Entry{Term: new(uint64(4)), Index: new(uint64(10 + i)), Type: pb.EntryNormal.Enum(), Data: make([]byte, 100)})
	}
	want := s.ents
	var got []*pb.Entry
	for s.bytes() > 500 {
		first, rest, ok := s.split(500)
		if !ok {
			t.Fatal("not split")
		}
		if first.bytes() > 500+entryHeadBytes+100 || first.hard.commit > first.first+uint64(len(first.ents))-1 || first.hard.term != 4 || first.hard.vote != 102 {
			t.Errorf("part of %d bytes: %+v, %d entries from %d", first.bytes(), first.hard, len(first.ents), first.first)
		}
		got = append(got, first.ents...)
		s = rest
	}
	got = append(got, s.ents...)
	if !reflect.DeepEqual(got, want) || *s.hard != (hardState{4, 102, 12}) {
		t.Error("parts do not make the whole")
	}
}

// TestDamagedSnapshotHeadersAreRefused flips each bit and cuts each length.
func TestDamagedSnapshotHeadersAreRefused(t *testing.T) {
	b := goldens()["snapshot"]
	for i := range b {
		if _, err := readSnapshotHeader(bytes.NewReader(b[:i])); err == nil {
			t.Fatalf("cut at %d and no error", i)
		}
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			if _, err := readSnapshotHeader(bytes.NewReader(bad)); err == nil {
				t.Fatalf("bit %d of byte %d flipped and no error", bit, i)
			}
		}
	}
}
