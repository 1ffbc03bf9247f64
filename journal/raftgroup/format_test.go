package raftgroup

import (
	"bytes"
	"encoding/binary"
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
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

var update = flag.Bool("rewrite", false, "rewrite the golden files")

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

// goldens are one payload of each kind, built by the production encoders.
func goldens() map[string][]byte {
	conf := goldenConf()
	g := newGroup(5, 101)
	g.written = wire.GroupImage{Shard: 5, Replica: 101, Hard: wire.HardState{Term: 4, Vote: 102, Commit: 11}, TruncatedIndex: 9, TruncatedTerm: 3, Conf: conf, Generation: 2, Install: goldenInstall()}
	c := &Core{retention: retention{watermark: 77}, order: []*group{g}, groups: map[sharding.ShardID]*group{5: g}, former: wire.Former{5: {Replica: 99, Generation: 1}, 8: {Replica: 301}}}
	in := &incomingSnapshot{SnapshotHeader: goldenHeader()}
	in.Complete(goldenInstall().Digest, nil)
	adopting := newGroup(5, 102)
	adopting.hard, adopting.generation, adopting.transfer.incoming = wire.HardState{Term: 4, Vote: 0, Commit: 11}, 1, in
	install := (&records{installs: []*group{adopting}}).nextInstall()
	remove, _, err := c.removeRecord([]ReplicaRef{{5, 101}})
	if err != nil {
		panic(err)
	}
	header := goldenHeader()
	turn := wire.AppendSection([]byte{wire.PayloadVersion}, &wire.Section{Shard: 5, Replica: 101, Hard: &wire.HardState{Term: 4, Vote: 102, Commit: 11}, Conf: &conf, First: 10, Ents: goldenEntries()})
	turn = wire.AppendSection(turn, &wire.Section{Shard: 6, Replica: 201, First: 1, Ents: goldenEntries()[:1]})
	cut := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64([]byte{wire.PayloadVersion}, 77), 1)
	cut = wire.AppendTruncation(cut, wire.TruncateImage{Shard: 5, Replica: 101, Index: 9, Term: 3})
	create, err := (&Core{}).createRecord([]GroupConfig{{Shard: 5, Replica: 103, Voters: wire.ReplicaIDs([]uint64{101, 102}), Learners: wire.ReplicaIDs([]uint64{103})}})
	if err != nil {
		panic(err)
	}
	return map[string][]byte{
		"remove":     bytes.Clone(remove),
		"install":    install,
		"snapshot":   header.Append(nil),
		"checkpoint": c.checkpoint(nil),
		"turn":       turn,
		"cut":        cut,
		"create":     create,
		"frame":      wire.EncodeFrame(goldenMessages()),
	}
}

func goldenInstall() wire.InstallImage {
	i := wire.InstallImage{Index: 9, Term: 3}
	for b := range i.Digest {
		i.Digest[b] = byte(b)
	}
	return i
}

func goldenHeader() wire.SnapshotHeader {
	return wire.SnapshotHeader{Shard: 5, From: 101, To: 102, Term: 4, Index: 9, IndexTerm: 3, Members: goldenConf()}
}

func goldenMessages() []wire.Message {
	return []wire.Message{
		{Shard: 5, Raft: &pb.Message{Type: pb.MsgApp.Enum(), From: new(uint64(101)), To: new(uint64(102)), Term: new(uint64(4)),
			LogTerm: new(uint64(3)), Index: new(uint64(9)), Commit: new(uint64(8)), RejectHint: new(uint64(0)), Entries: goldenEntries()}},
		{Shard: 6, Raft: &pb.Message{Type: pb.MsgAppResp.Enum(), From: new(uint64(201)), To: new(uint64(202)), Term: new(uint64(7)),
			LogTerm: new(uint64(6)), Index: new(uint64(20)), Commit: new(uint64(0)), RejectHint: new(uint64(15)), Reject: new(true)}},
		{Shard: 6, Raft: &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(202)), To: new(uint64(201)), Term: new(uint64(7)),
			Commit: new(uint64(19)), Context: []byte("12345678")}},
		{Shard: 300, Raft: &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: new(uint64(201)), To: new(uint64(202)), Term: new(uint64(7))}},
		{Shard: 6, Note: wire.NoteSleep, Raft: &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(202)), To: new(uint64(201)), Term: new(uint64(7)),
			Commit: new(uint64(19))}},
		{Shard: 6, Note: wire.NoteWake, Raft: &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: new(uint64(201)), To: new(uint64(202)), Term: new(uint64(7))}},
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
	if h, err := wire.ReadSnapshotHeader(bytes.NewReader(b["snapshot"])); err != nil || !reflect.DeepEqual(h.Append(nil), b["snapshot"]) || h.Index != 9 || h.Members.Index != 9 {
		t.Errorf("header %+v, %v", h, err)
	}
	var got []wire.Message
	if err := wire.DecodeFrame(b["frame"], func(m wire.Message) { got = append(got, m) }); err != nil {
		t.Fatal(err)
	}
	for i, m := range goldenMessages() {
		if got[i].Shard != m.Shard || !proto.Equal(got[i].Raft, m.Raft) {
			t.Errorf("message %d: %v", i, got[i].Raft)
		}
	}
}

// TestDamagedFramesAreRejected flips each bit of a frame and truncates it at each
// length. No message is decoded from any of them.
func TestDamagedFramesAreRejected(t *testing.T) {
	b := goldens()
	frame := b["frame"]
	for i := range frame {
		for bit := range 8 {
			bad := bytes.Clone(frame)
			bad[i] ^= 1 << bit
			if err := wire.DecodeFrame(bad, func(wire.Message) { t.Fatalf("a message of a frame with bit %d of byte %d flipped", bit, i) }); err == nil {
				t.Fatalf("bit %d of byte %d flipped and no error", bit, i)
			}
		}
		if err := wire.DecodeFrame(frame[:i], func(wire.Message) {}); err == nil && i > wire.FrameHeadBytes {
			t.Fatalf("frame cut at %d and no error", i)
		}
	}
	if _, _, err := wire.Open(wire.KindTurn, []byte{wire.PayloadVersion + 1}); !errors.Is(err, journal.ErrUnsupported) {
		t.Errorf("a later version: %v", err)
	}
}

func TestFrameDecoderRejectsInvalidMessages(t *testing.T) {
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
		"members as garbage":   func(m *pb.Message) { m.Entries[2].Data = []byte{1, 2} },
		"member 0":             func(m *pb.Message) { m.Entries[2].Data = changes(t, pb.ConfChangeAddNode, 0) },
		"change of no kind":    func(m *pb.Message) { m.Entries[2].Data = changes(t, 77, 5) },
		"transition of none":   func(m *pb.Message) { m.Entries[2].Data = []byte{8, 9} },
	}
	for name, change := range tests {
		m := base()
		change(m)
		if err := wire.DecodeFrame(wire.EncodeFrame([]wire.Message{{Shard: 5, Raft: m}}), func(wire.Message) {}); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := wire.DecodeFrame(wire.EncodeFrame([]wire.Message{{Shard: 5, Raft: base()}}), func(wire.Message) {}); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeFrame(f *testing.F) {
	f.Add(goldens()["frame"])
	f.Add(wire.BeginFrame(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= wire.FrameHeadBytes {
			wire.EndFrame(b) // valid checksum, to reach the decoders after it
		}
		var got []wire.Message
		if err := wire.DecodeFrame(b, func(m wire.Message) { got = append(got, m) }); err != nil {
			return
		}
		again := wire.EncodeFrame(got)
		if !bytes.Equal(again, b) {
			t.Fatalf("decoded and encoded:\n%x\n%x", b, again)
		}
	})
}

func TestSplitSectionsAreRestartable(t *testing.T) {
	s := wire.Section{Shard: 5, Replica: 101, Hard: &wire.HardState{Term: 4, Vote: 102, Commit: 12}, First: 10}
	for i := range 20 {
		s.Ents = append(s.Ents, &pb.Entry{Term: new(uint64(4)), Index: new(uint64(10 + i)), Type: pb.EntryNormal.Enum(), Data: make([]byte, 100)})
	}
	want := s.Ents
	var got []*pb.Entry
	for s.Bytes() > 500 {
		first, rest, ok := s.Split(500)
		if !ok {
			t.Fatal("not split")
		}
		if first.Bytes() > 500+wire.EntryHeadBytes+100 || first.Hard.Commit > first.First+uint64(len(first.Ents))-1 || first.Hard.Term != 4 || first.Hard.Vote != 102 {
			t.Errorf("part of %d bytes: %+v, %d entries from %d", first.Bytes(), first.Hard, len(first.Ents), first.First)
		}
		got = append(got, first.Ents...)
		s = rest
	}
	got = append(got, s.Ents...)
	if !reflect.DeepEqual(got, want) || *s.Hard != (wire.HardState{Term: 4, Vote: 102, Commit: 12}) {
		t.Error("parts do not make the whole")
	}
}

// TestDamagedSnapshotHeadersAreRejected flips each bit of a header and
// truncates the header at each length. No damaged header is decoded.
func TestDamagedSnapshotHeadersAreRejected(t *testing.T) {
	b := goldens()["snapshot"]
	for i := range b {
		if _, err := wire.ReadSnapshotHeader(bytes.NewReader(b[:i])); err == nil {
			t.Fatalf("cut at %d and no error", i)
		}
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			if _, err := wire.ReadSnapshotHeader(bytes.NewReader(bad)); err == nil {
				t.Fatalf("bit %d of byte %d flipped and no error", bit, i)
			}
		}
	}
}
