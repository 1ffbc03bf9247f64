package hostile

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"math"
	"net/http"
	"strconv"
	"testing"

	"github.com/hostd/hostd/api/client"
	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// Types of raft messages, as numbered in journal/raftgroup/FORMAT.md.
const (
	msgApp        = 3
	msgAppResp    = 4
	msgVote       = 5
	msgVoteResp   = 6
	msgTimeoutNow = 14
	msgHeartbeat  = 100 // has its own form in a frame
	msgSleep      = 101 // has its own form in a frame
)

// far is greater than any index of a log.
const far = uint64(1) << 50

// forged is a forged raft message.
type forged struct {
	shard                        uint32
	from, to                     uint64
	kind                         byte
	term, logTerm, index, commit uint64
	entries                      []forgedEntry
}

type forgedEntry struct {
	term   uint64
	change bool // the entry changes the members
	data   []byte
}

// frame encodes messages as a frame, as specified in FORMAT.md.
func frame(messages ...forged) []byte {
	le := binary.LittleEndian
	b := make([]byte, 8)
	b[0] = 2
	for _, m := range messages {
		if m.kind >= msgHeartbeat {
			b = append(b, 1+2*(m.kind-msgHeartbeat))
			for _, v := range []uint64{uint64(m.shard), m.from, m.to, m.term, m.commit} {
				b = binary.AppendUvarint(b, v)
			}
			if m.kind == msgHeartbeat {
				b = append(b, 0)
			}
			continue
		}
		b = le.AppendUint32(append(b, 0), m.shard)
		b = le.AppendUint64(le.AppendUint64(b, m.from), m.to)
		b = append(b, m.kind, 0)
		for _, v := range []uint64{m.term, m.logTerm, m.index, m.commit, 0} {
			b = le.AppendUint64(b, v)
		}
		b = le.AppendUint32(append(b, 0), uint32(len(m.entries)))
		for _, e := range m.entries {
			kind := byte(0)
			if e.change {
				kind = 2
			}
			b = append(le.AppendUint64(b, e.term), kind)
			b = append(le.AppendUint32(b, uint32(len(e.data))), e.data...)
		}
	}
	le.PutUint32(b[4:], crc32.Checksum(b[8:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// Metrics of rejected frames and messages.
const (
	framesRefused   = "hostd_raft_frames_rejected_total"
	messagesRefused = "hostd_raft_messages_rejected_total"
	messagesForged  = "hostd_raft_messages_forged_total"
)

// link sends frames to a node over a link in the name of another node. It
// returns the link number that the node has accepted.
func (i *impostor) link(to int, as string, incarnation uint64, frames ...[]byte) {
	i.t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	peers := peerv1connect.NewPeerServiceClient(&http.Client{Transport: transport}, i.cluster.Node(to).PeerAPI())
	ctx, cancel := context.WithTimeout(i.t.Context(), testkit.Patience)
	defer cancel()
	for number := 1; ; number++ {
		stream := peers.Link(ctx)
		for name, value := range map[string]string{
			"Hostd-Format": "1", "Hostd-Levels": levels, "Hostd-Node": as, "Hostd-Incarnation": strconv.FormatUint(incarnation, 10),
			"Hostd-Cluster": i.id, "Hostd-Link": strconv.Itoa(number),
		} {
			stream.RequestHeader().Set(name, value)
		}
		err := stream.Send(&peerv1.LinkRequest{Beat: 1})
		if err == nil {
			_, err = stream.Receive()
		}
		if err == nil {
			err = stream.Send(&peerv1.LinkRequest{Frames: frames})
		}
		for beats := uint64(2); err == nil; beats++ { // repeat until the heartbeat after the frames is answered
			if err = stream.Send(&peerv1.LinkRequest{Beat: beats}); err == nil {
				var echo *peerv1.LinkResponse
				if echo, err = stream.Receive(); err == nil && echo.GetBeat() > 1 {
					_ = stream.CloseRequest()
					return
				}
			}
		}
		if ctx.Err() != nil || number > 1000 {
			i.t.Fatalf("link to node %d as %s: %v", to, as, err)
		}
	}
}

// to copies a message for each possible replica ID, because a node that is not
// a member does not know which replica ID is valid.
func to(replicas uint64, m forged) (all []forged) {
	for id := range replicas {
		if m.to = id + 1; m.to != m.from {
			all = append(all, m)
		}
	}
	return all
}

// removal encodes a membership change that removes a replica.
func removal(replica byte) []byte { return []byte{0x12, 4, 8, 1, 16, replica} }

// TestForgedFramesAreRejected checks that a single node rejects and counts all frames of
// a stranger. The node must continue, its data must verify after a restart, and its log
// must contain no invalid entry.
func TestForgedFramesAreRejected(t *testing.T) {
	testkit.Long(t, "long")
	c := testkit.NewCluster(t, 1, testkit.ClusterOptions{})
	c.Start()
	c.Push("counter")
	i, node := newImpostor(t, c), c.Node(0)
	const replicas = 4 // replicas of three shards and the metadata shard
	torn := frame(forged{shard: 1, from: 4711, to: 2, kind: msgHeartbeat, term: 5})
	torn = torn[:len(torn)-2]
	binary.LittleEndian.PutUint32(torn[4:], crc32.Checksum(torn[8:], crc32.MakeTable(crc32.Castagnoli)))
	flipped := frame(forged{shard: 1, from: 4711, to: 2, kind: msgHeartbeat, term: 5})
	flipped[9] ^= 1
	later := frame()
	later[0] = 9
	tests := []struct {
		name    string
		frame   []byte
		counted string
		lost    bool // the frame is rejected before it reaches a group
	}{
		{"a heartbeat beyond the log, of a term beyond all", frame(to(replicas, forged{shard: 1, from: 4711, kind: msgHeartbeat, term: 1 << 40, commit: far})...), messagesForged, false},
		{"a heartbeat beyond the log", frame(to(replicas, forged{shard: 2, from: 4711, kind: msgHeartbeat, term: 1 << 20, commit: far})...), messagesForged, false},
		{"one for the metadata", frame(to(replicas, forged{shard: 0, from: 4711, kind: msgHeartbeat, term: 1 << 20, commit: far})...), messagesForged, false},
		{"the sleep of a leader", frame(to(replicas, forged{shard: 1, from: 4711, kind: msgSleep, term: 1 << 20, commit: far})...), messagesForged, false},
		{"a change of members that is garbage", frame(to(replicas, forged{shard: 1, from: 4711, kind: msgApp, term: 1 << 20, logTerm: 1, index: 1, commit: 2, entries: []forgedEntry{{1 << 20, true, []byte("garbage")}}})...), framesRefused, false},
		{"a change of members that leaves nobody", frame(to(replicas, forged{shard: 1, from: 4711, kind: msgApp, term: 1 << 20, logTerm: 1, index: 1, commit: 2, entries: []forgedEntry{{1 << 20, true, removal(2)}}})...), messagesForged, false},
		{"an entry that is garbage", frame(to(replicas, forged{shard: 1, from: 4711, kind: msgApp, term: 1 << 20, logTerm: 1, index: 1, commit: 2, entries: []forgedEntry{{1 << 20, false, []byte("garbage")}}})...), messagesForged, false},
		{"another history", frame(to(replicas, forged{shard: 1, from: 4711, kind: msgApp, term: 1 << 20, logTerm: 1 << 19, index: 1, commit: 1})...), messagesForged, false},
		{"an append that commits beyond the log", frame(to(replicas, forged{shard: 1, from: 4711, kind: msgApp, term: 1 << 20, logTerm: 1, index: 1, commit: far})...), messagesForged, false},
		{"an append at the end of all logs", frame(to(replicas, forged{shard: 1, from: 4711, kind: msgApp, term: 1 << 20, logTerm: 1, index: math.MaxUint64 - 1, commit: 1})...), messagesForged, false},
		{"an answer to what was never sent", frame(to(replicas, forged{shard: 1, from: 4711, kind: msgAppResp, term: 1 << 20, index: far})...), messagesForged, false},
		{"a vote in the last of all terms", frame(to(replicas, forged{shard: 1, from: 4711, kind: msgVote, term: math.MaxUint64, logTerm: 1 << 20, index: far})...), messagesForged, false},
		{"a vote for nobody", frame(to(replicas, forged{shard: 1, from: 4711, kind: msgVoteResp, term: 1 << 20})...), messagesForged, false},
		{"an order to stand for election", frame(to(replicas, forged{shard: 1, from: 4711, kind: msgTimeoutNow, term: 1 << 20})...), messagesForged, false},
		{"a shard that is not here", frame(forged{shard: 99, from: 4711, to: 2, kind: msgHeartbeat, term: 5}, forged{shard: math.MaxUint32, from: 4711, to: 2, kind: msgApp, term: 5}), messagesRefused, true},
		{"a replica that is not here", frame(forged{shard: 1, from: 4711, to: 4712, kind: msgHeartbeat, term: 5}), messagesRefused, true},
		{"a message that ends early", torn, framesRefused, true},
		{"another checksum", flipped, framesRefused, true},
		{"a later version", later, framesRefused, true},
		{"a byte", []byte{2}, framesRefused, true},
	}
	for n, tt := range tests {
		before, refused := c.Shards(0), metric(t, node, tt.counted)
		i.link(0, "x"+strconv.Itoa(n), 1, tt.frame)
		node.Await(tt.name+" is refused", func() bool { return metric(t, node, tt.counted) > refused })
		serves(t, node.Client(client.Options{}))
		for s, after := range c.Shards(0) {
			if after.GetTerm() != before[s].GetTerm() || len(after.GetStopped()) > 0 {
				t.Errorf("%s: shard %d of term %d is at term %d, stopped %v", tt.name, after.GetShardId(), before[s].GetTerm(), after.GetTerm(), after.GetStopped())
			}
		}
		if text, status := ready(t, node); status != http.StatusOK {
			t.Errorf("%s: readyz: %d %s", tt.name, status, text)
		}
		if tt.lost && n < len(tests)-1 {
			continue
		}
		node.Stop()
		node.MustVerify()
		node.Start()
		serves(t, node.Client(client.Options{}))
	}
}

// TestFramesForgedAsMemberAreHarmless sends frames in the name of a member to the leader
// and a follower of a cluster of three nodes. Only frames that the member could have
// sent may be accepted, and no frames in the name of another node's replica.
func TestFramesForgedAsMemberAreHarmless(t *testing.T) {
	testkit.Long(t, "long")
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	i := newImpostor(t, c)
	beside := c.Client(client.Options{})
	const replicas = 12 // replicas of three shards and the metadata shard
	from := func(m forged) (all []forged) {
		for id := range uint64(replicas) {
			m.from = id + 1
			all = append(all, to(replicas, m)...)
		}
		return all
	}
	for n, tt := range []struct {
		name    string
		as      string
		message forged
	}{
		{"a heartbeat beyond the log", "n2", forged{kind: msgHeartbeat, term: 1 << 20, commit: far}},
		{"a heartbeat of a term beyond all", "n2", forged{kind: msgHeartbeat, term: 1 << 40}},
		{"an append at the end of all logs", "n2", forged{kind: msgApp, term: 1 << 40, index: math.MaxUint64 - 1}},
		{"an append of a term beyond all", "n2", forged{kind: msgApp, term: 1 << 40, logTerm: 1, index: 1, entries: []forgedEntry{{1 << 40, true, removal(2)}}}},
		{"a vote in the last of all terms", "n2", forged{kind: msgVote, term: math.MaxUint64, logTerm: 1 << 20, index: far}},
		{"a heartbeat of another node's replica", "x1", forged{kind: msgHeartbeat, term: 1 << 20}},
		{"an append of another node's replica", "x2", forged{kind: msgApp, term: 1 << 20, logTerm: 1 << 19, index: 1, commit: 1}},
		{"a vote for another node's replica", "x3", forged{kind: msgVote, term: 1 << 20, logTerm: 1 << 20, index: far}},
		{"an order of another node's replica", "x4", forged{kind: msgTimeoutNow, term: 1 << 20}},
	} {
		incarnation := uint64(1)
		if tt.as == "n2" {
			incarnation = i.member("n2").GetIncarnation()
		}
		for _, at := range []int{0, 2} {
			for shard := range uint32(4) {
				tt.message.shard = shard
				refused := metric(t, c.Node(at), messagesForged)
				i.link(at, tt.as, incarnation, frame(from(tt.message)...))
				c.Node(at).Await(tt.name+" is refused", func() bool { return metric(t, c.Node(at), messagesForged) > refused })
			}
		}
		serves(t, beside)
		for at := range 3 {
			for _, s := range c.Shards(at) {
				if s.GetTerm() > 1<<19 || len(s.GetStopped()) > 0 {
					t.Errorf("%s: shard %d is at term %d, stopped %v", tt.name, s.GetShardId(), s.GetTerm(), s.GetStopped())
				}
			}
		}
		if n%3 == 2 {
			c.StopAll()
			for _, node := range c.Nodes() {
				node.MustVerify()
			}
			c.Start()
			c.AwaitSpread()
			serves(t, beside)
		}
	}
}

// ready requests a node's /readyz.
func ready(t testing.TB, n *testkit.Node) (text string, status int) {
	t.Helper()
	res, err := (&http.Client{Timeout: testkit.Patience}).Get(n.API() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b := make([]byte, 1<<10)
	k, _ := res.Body.Read(b)
	return string(b[:k]), res.StatusCode
}
