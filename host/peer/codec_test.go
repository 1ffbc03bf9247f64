package peer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/sharding"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata")

func randomFrames(rng *rand.Rand) [][]byte {
	var frames [][]byte
	for range rng.IntN(5) {
		f := make([]byte, 1+rng.IntN(300))
		for i := range f {
			f[i] = byte(rng.Uint32())
		}
		frames = append(frames, f)
	}
	return frames
}

// The codec agrees with the generated types in both directions.
func TestLinkCodecMatchesGeneratedTypes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := batch{frames: randomFrames(rng), heartbeat: rng.Uint64N(3) * rng.Uint64(), turns: rng.Uint64N(2) * rng.Uint64()}
		want := &peerv1.LinkRequest{Frames: b.frames, Beat: b.heartbeat, LoopTurns: b.turns}
		encoded, err := linkCodec{}.Marshal(&b)
		if err != nil {
			t.Fatal(err)
		}
		var got peerv1.LinkRequest
		if err := proto.Unmarshal(encoded, &got); err != nil || !proto.Equal(&got, want) {
			t.Fatalf("generated code reads %v, %v, wanted %v", &got, err, want)
		}
		generated, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var back batch
		back.frames = randomFrames(rng) // previous content must be cleared
		if err := (linkCodec{}).Unmarshal(generated, &back); err != nil || back.heartbeat != b.heartbeat || back.turns != b.turns || !slices.EqualFunc(back.frames, b.frames, bytes.Equal) {
			t.Fatalf("%v becomes %v, %v", b, back, err)
		}
		e := echo{rng.Uint64(), rng.Uint64(), rng.Uint64N(2) * rng.Uint64(), int64(rng.Uint64()), rng.Uint64N(2) * rng.Uint64()}
		encoded, err = linkCodec{}.Marshal(&e)
		if err != nil {
			t.Fatal(err)
		}
		var answer peerv1.LinkResponse
		if err := proto.Unmarshal(encoded, &answer); err != nil || answer.Beat != e.heartbeat || answer.ReceivedBytes != e.received ||
			answer.LoopTurns != e.turns || answer.ClockNanos != e.clock || answer.HeldMicros != e.held {
			t.Fatalf("generated code reads %v, %v, wanted %v", &answer, err, e)
		}
		var same echo
		if err := (linkCodec{}).Unmarshal(encoded, &same); err != nil || same != e {
			t.Fatalf("%v becomes %v, %v", e, same, err)
		}
	}
}

// A frame never aliases the codec's input, and appending to it does not
// overwrite the next frame.
func TestFramesDoNotAliasInput(t *testing.T) {
	data := (&batch{frames: [][]byte{[]byte("one"), []byte("two")}}).append(nil)
	var b batch
	if err := (linkCodec{}).Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	clear(data)
	_ = append(b.frames[0], "xxx"...)
	if string(b.frames[0]) != "one" || string(b.frames[1]) != "two" {
		t.Errorf("frames became %q", b.frames)
	}
}

func FuzzLinkCodec(f *testing.F) {
	f.Add((&batch{frames: [][]byte{[]byte("a"), []byte("bc")}, heartbeat: 7}).append(nil))
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		var b batch
		err := linkCodec{}.Unmarshal(data, &b)
		if err != nil && !errors.Is(err, errMalformed) {
			t.Fatal(err)
		}
		if err == nil {
			var again batch
			if err := (linkCodec{}).Unmarshal(b.append(nil), &again); err != nil || again.heartbeat != b.heartbeat || again.turns != b.turns || !slices.EqualFunc(again.frames, b.frames, bytes.Equal) {
				t.Fatalf("%v becomes %v, %v", b, again, err)
			}
		}
		var e echo
		if err := (linkCodec{}).Unmarshal(data, &e); err != nil && !errors.Is(err, errMalformed) {
			t.Fatal(err)
		}
	})
}

// The bytes on the wire are those in FORMAT.md.
func TestWireBytesMatchFormatPage(t *testing.T) {
	var out strings.Builder
	show := func(name string, msg any) {
		data, err := linkCodec{}.Marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s\n%s", name, hex.Dump(data))
	}
	show("LinkRequest: a beat", &batch{heartbeat: 1})
	show("LinkRequest: a beat of a node with a raft loop", &batch{heartbeat: 1, turns: 600})
	show("LinkRequest: two frames", &batch{frames: [][]byte{[]byte("frame 1"), []byte("frame two")}})
	show("LinkRequest: a frame and a beat", &batch{frames: [][]byte{bytes.Repeat([]byte{0xaa}, 200)}, heartbeat: 300})
	show("LinkResponse", &echo{heartbeat: 300, received: 70000})
	show("LinkResponse of a node with a raft loop", &echo{heartbeat: 300, received: 70000, turns: 600, clock: 1763701234000000000, held: 1500})
	header := http.Header{}
	Hello{Cluster: "cluster", Node: "n1", Incarnation: 1763701234}.write(header)
	out.WriteString("Hello\n")
	header.Write(&out)
	Hello{Cluster: "cluster", Node: "n1", Incarnation: 1763701234, Speaks: sharding.VersionRange{Min: 1, Max: 2}}.write(header)
	out.WriteString("Hello of a node that speaks levels 1 and 2\n")
	header.Write(&out)
	got := strings.ReplaceAll(out.String(), "\r\n", "\n")
	const name = "testdata/format.txt"
	if *rewrite {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the format changed:\n%s\nwanted\n%s", got, want)
	}
}

func TestHelloIsChecked(t *testing.T) {
	good := func() http.Header {
		h := http.Header{}
		Hello{Cluster: "c", Node: "n", Incarnation: 3}.write(h)
		return h
	}
	if h, err := readHello(good()); err != nil || h != (Hello{"c", "n", 3, sharding.VersionRange{Min: 1, Max: 1}, false}) {
		t.Errorf("%v, %v", h, err)
	}
	for _, c := range []struct {
		format, levels string
		want           sharding.VersionRange
	}{
		{"1", "", sharding.VersionRange{Min: 1, Max: 1}}, // the first release
		{"1", "1-2", sharding.VersionRange{Min: 1, Max: 2}},
		{"2", "2-7", sharding.VersionRange{Min: 2, Max: 7}}, // a release without version 1
	} {
		h := good()
		h.Set(headerFormat, c.format)
		h.Set(headerLevels, c.levels)
		if got, err := readHello(h); err != nil || got.Speaks != c.want {
			t.Errorf("format %q, levels %q: %v, %v", c.format, c.levels, got.Speaks, err)
		}
	}
	for _, c := range [][2]string{
		{headerLevels, "4-5"}, {headerLevels, "2"}, {headerLevels, "2-1"}, {headerLevels, "0-1"}, {headerLevels, "1-x"}, {headerLevels, "-"}, {headerIncarnation, "0"}, {headerIncarnation, "x"}, {headerIncarnation, ""},
		{headerNode, ""}, {headerNode, "a b"}, {headerNode, strings.Repeat("n", maxNodeIDBytes+1)}, {headerCluster, "\x00"},
	} {
		h := good()
		h.Set(c[0], c[1])
		if _, err := readHello(h); !errors.Is(err, ErrFormat) {
			t.Errorf("%s %q: %v", c[0], c[1], err)
		}
	}
	for _, format := range []string{"", "0", "x", "4"} { // these formats come from a node that sends no range
		h := good()
		h.Del(headerLevels)
		h.Set(headerFormat, format)
		if _, err := readHello(h); !errors.Is(err, ErrFormat) {
			t.Errorf("format %q: %v", format, err)
		}
	}
}

func TestQueueDropsFramesOverItsBounds(t *testing.T) {
	var q queue
	q.init(3, MaxFrameBytes+10)
	for i, c := range []struct {
		size int
		ok   bool
	}{
		{MaxFrameBytes + 1, false}, {MaxFrameBytes, true}, {11, false}, {10, true}, {1, false}, {0, true}, {0, false},
	} {
		if got := q.push(make([]byte, c.size)); got != c.ok {
			t.Errorf("push %d of %d bytes: %v", i, c.size, got)
		}
	}
	if _, _, dropped := q.stats(); dropped != 4 {
		t.Errorf("%d dropped", dropped)
	}
	// Frames that were taken are charged to the queue's bound until they are
	// released.
	taken := q.take(nil)
	if len(taken) != 3 || q.push([]byte("x")) {
		t.Errorf("%d taken, or there is room", len(taken))
	}
	q.release(2, MaxFrameBytes)
	if !q.push([]byte("x")) || q.push(make([]byte, MaxFrameBytes)) {
		t.Error("room is not what was released")
	}
	q.discard()
	if frames, bytes, dropped := q.stats(); len(q.take(taken)) != 0 || dropped != 7 || frames != 1 || bytes != 10 {
		t.Errorf("after discard: %d dropped, %d frames of %d bytes", dropped, frames, bytes)
	}
}

// sayings records what its node reports about other nodes.
type sayings struct {
	unobserved
	all []string
}

func (s *sayings) PeerAlive(sharding.NodeID)     { s.all = append(s.all, "heard") }
func (s *sayings) PeerSuspected(sharding.NodeID) { s.all = append(s.all, "silent") }

// After a pause of this process itself, no node is suspected until a whole
// SuspectAfter has passed after the pause.
func TestOwnPauseSuspectsNobody(t *testing.T) {
	said := &sayings{}
	p := &Peers{opts: Options{SuspectAfter: 700, Observer: said}.withDefaults()}
	q := &peer{owner: p, id: "b", kick: make(chan struct{}, 1)}
	expect := func(want ...string) {
		t.Helper()
		if !slices.Equal(said.all, want) {
			t.Fatalf("said %v, wanted %v", said.all, want)
		}
	}
	q.look(100, 0)
	expect()
	q.signs.NoteArrival(100)
	q.look(110, 0)
	expect("heard")
	q.look(799, 0)
	expect("heard")
	q.look(100_000, 100_000) // because this process itself was stopped for long
	q.look(100_699, 100_000)
	expect("heard")
	q.look(100_700, 100_000)
	expect("heard", "silent")
	q.look(100_800, 100_800) // another pause does not make the node alive
	expect("heard", "silent")
	q.signs.NoteArrival(100_900)
	q.look(100_900, 100_800)
	expect("heard", "silent", "heard")
}

// A node that reports the iterations of its raft loop is alive only while their
// number changes, even if other bytes arrive from it. If a node does not report
// them, arriving bytes suffice.
func TestLivenessNeedsLoopProgress(t *testing.T) {
	p := Patience{Suspect: 7, Stall: 21}
	var s Signs
	s.Begin(100)
	expect := func(now, since int64, heard, silent bool) {
		t.Helper()
		if s.IsAlive(now, p) != heard || s.IsSuspected(now, since, p) != silent {
			t.Fatalf("at %d: heard %v, silent %v", now, s.IsAlive(now, p), s.IsSuspected(now, since, p))
		}
	}
	expect(106, 0, false, false)
	expect(107, 0, false, true)
	for now := int64(110); now < 200; now++ {
		s.NoteArrival(now)
		s.NoteTurns(0, now)
		expect(now, 0, true, false)
	}
	for now := int64(200); now < 300; now++ { // a slow loop
		s.NoteArrival(now)
		s.NoteTurns(uint64(now/20), now)
		expect(now, 0, true, false)
	}
	for now := int64(300); now < 400; now++ { // a loop that hangs at 14
		s.NoteArrival(now)
		s.NoteTurns(14, now)
		expect(now, 0, now < 280+21, now >= 280+21)
	}
	s.NoteTurns(14, 400)
	s.NoteArrival(400)
	expect(400, 400, false, false) // because the watcher itself was paused
	s.NoteTurns(15, 401)
	expect(401, 0, true, false)
	s.Renew() // the node now runs an older release, which does not report its loop
	s.NoteArrival(500)
	expect(500, 0, true, false)
}

// A large request to a call that anyone may make is rejected before it is
// decoded, because the caller is not known yet.
func TestOpenCallsAreBoundedInSize(t *testing.T) {
	p := &Peers{opts: Options{Self: "n", Control: NoControl{}}}
	cluster := "c"
	p.cluster.Store(&cluster)
	handler := p.newHandler()
	for _, procedure := range []string{peerv1connect.PeerServiceProbeProcedure, peerv1connect.PeerServicePledgeProcedure, peerv1connect.PeerServiceVouchProcedure} {
		for size, want := range map[int]string{maxOpenBytes + 1: "resource_exhausted", maxOpenBytes: "unavailable"} {
			r := httptest.NewRequest(http.MethodPost, procedure, bytes.NewReader(protowire.AppendBytes(protowire.AppendTag(nil, 900, protowire.BytesType), make([]byte, size-4))))
			Hello{Cluster: "c", Node: "m", Incarnation: 3}.write(r.Header)
			r.Header.Set("Content-Type", "application/proto")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s with %d bytes: %d %s", procedure, size, w.Code, w.Body)
			}
		}
	}
}
