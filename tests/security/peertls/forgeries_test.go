package peertls

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hostd/hostd/api/client"
	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/tests/support/testkit"
)

// forgers returns three nodes that require TLS of each other, and a forger with
// the certificate of a node that neither bootstrapped the cluster nor leads the
// metadata shard.
func forgers(t *testing.T) (w *world, f forger, forging int) {
	t.Helper()
	own := newAuthority(t)
	w = newWorld(t, own)
	for i := range w.Nodes() {
		w.mode(i, "require")
	}
	w.Start()
	w.Push("counter")
	w.AwaitSpread()
	if forging = 1; w.Leader(0) == forging {
		forging = 2
	}
	f = forger{t: t, config: as(own.pair(request(w.Node(forging).ID())), own), node: w.Node(forging).ID(), own: own}
	f.starts = f.members(w.Node(0))
	return w, f, forging
}

// hello adds the headers of the forger's own calls.
func (f forger) hello(to http.Header) {
	for name, value := range map[string]string{
		"Hostd-Format": "1", "Hostd-Levels": fmt.Sprintf("%d-%d", sharding.SupportedVersions.Min, sharding.SupportedVersions.Max), "Hostd-Node": f.node,
		"Hostd-Incarnation": strconv.FormatUint(f.starts[f.node], 10), "Hostd-Cluster": f.cluster,
	} {
		to.Set(name, value)
	}
}

// transport returns a transport from the forger to a node.
func (f forger) transport(to *testkit.Node) http.RoundTripper {
	config := f.config.Clone()
	config.ServerName = to.ID() + ".example"
	transport := network.NewHTTPTransport(over{config: config}, network.HTTPOptions{DialTimeout: testkit.Patience, Idle: testkit.Patience})
	f.t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// forward sends a node one item on a new stream, and returns the failure; nil
// if it succeeds.
func (f forger) forward(to *testkit.Node, item *peerv1.ForwardRequest_Item) (failure *peerv1.ForwardError) {
	f.t.Helper()
	calls := peerv1connect.NewForwardServiceClient(&http.Client{Transport: f.transport(to)}, to.PeerAPI())
	to.Until("a stream is answered", func() error {
		ctx, cancel := context.WithTimeout(f.t.Context(), testkit.Patience)
		defer cancel()
		stream := calls.Forward(ctx)
		f.hello(stream.RequestHeader())
		stream.RequestHeader().Set("Hostd-Link", "forged")
		defer stream.CloseRequest()
		if err := stream.Send(&peerv1.ForwardRequest{Items: []*peerv1.ForwardRequest_Item{item}}); err != nil {
			return err
		}
		for {
			answer, err := stream.Receive()
			if err != nil {
				return err
			}
			if items := answer.GetItems(); len(items) > 0 {
				failure = items[0].GetError()
				return nil
			}
		}
	})
	return failure
}

// entity returns a counter in a shard.
func entity(name string, shard sharding.ShardID, shards uint32) sharding.EntityID {
	for n := 0; ; n++ {
		if e := (sharding.EntityID{Type: "counter", ID: name + strconv.Itoa(n)}); sharding.ShardOf(e, shards) == shard {
			return e
		}
	}
}

// A node may deliver messages only from entities whose shards it leads.
// Otherwise a forged message would take effect, and the real message with the
// same number would never arrive.
func TestMessageFromNonLeaderIsRejected(t *testing.T) {
	w, f, forging := forgers(t)
	cl := w.Client(client.Options{Timeout: testkit.Patience})
	shards := uint32(len(w.Shards(0)))
	if w.Shards(0)[0].GetShardId() == 0 {
		shards--
	}
	leaders := func() (all []int) {
		for s := range shards {
			all = append(all, w.Leader(s+1))
		}
		return all
	}
	tried := map[bool]int{}
	for from := range shards {
		for to := range shards {
			source, target := entity(fmt.Sprintf("source-%d-%d-", from, to), sharding.ShardID(from+1), shards), entity(fmt.Sprintf("target-%d-%d-", from, to), sharding.ShardID(to+1), shards)
			before := leaders()
			at := before[to]
			if at < 0 || at == forging {
				continue
			}
			failure := f.forward(w.Node(at), &peerv1.ForwardRequest_Item{
				Correlation: 1, Kind: peerv1.ForwardKind_DELIVER, EntityType: target.Type, EntityId: target.ID, Name: "add", Payload: []byte(`{"amount":1000}`),
				CommandId: fmt.Sprintf("made-up-%d-%d", from, to), ServerId: true, RemainingMicros: uint64(testkit.Patience.Microseconds()),
				Send: &peerv1.ForwardRequest_Send{SourceType: source.Type, SourceId: source.ID, Number: 1},
			})
			if fmt.Sprint(leaders()) != fmt.Sprint(before) {
				continue // the forging node may have become the leader meanwhile
			}
			leads := before[from] == forging
			tried[leads]++
			if (failure == nil) != leads || failure != nil && !strings.Contains(failure.GetText(), "does not lead") {
				t.Errorf("a message of shard %d, led by %d, from %s: %v", from+1, before[from], f.node, failure)
			}
			r, err := cl.Query(t.Context(), client.Query{EntityType: target.Type, EntityID: target.ID, Name: "total"})
			if counts := err == nil && strings.Contains(string(r.Data), "1000"); counts != leads {
				t.Errorf("of a message of shard %d, led by %d, from %s comes %s, %v", from+1, before[from], f.node, r.Data, err)
			}
		}
	}
	if tried[false] == 0 || tried[true] == 0 {
		t.Errorf("%d messages of shards that it leads were tried, %d of others", tried[true], tried[false])
	}
}

// Only the coordinator decides about members and replicas. Another node can
// neither propose changes nor request leadership transfers.
func TestOnlyCoordinatorMayCoordinate(t *testing.T) {
	w, f, forging := forgers(t)
	victim := w.Node(3 - forging).ID()
	var transfers []*peerv1.Transfer
	for _, s := range w.Shards(0) {
		for _, to := range []string{f.node, "n1", victim} {
			transfers = append(transfers, &peerv1.Transfer{ShardId: s.GetShardId(), From: s.GetLeader(), To: to})
		}
	}
	for _, tt := range []struct {
		name, path, fault string
		request           proto.Message
	}{
		{"it has a member removed", peerv1connect.PeerServiceProposeProcedure, "KIND_REFUSED", &peerv1.ProposeRequest{Command: meta.RemoveMember(sharding.NodeID(victim))}},
		{"it puts a member down", peerv1connect.PeerServiceProposeProcedure, "KIND_REFUSED", &peerv1.ProposeRequest{Command: meta.Down(sharding.NodeID(victim))}},
		{"it says that a member is down", peerv1connect.PeerServiceProposeProcedure, "KIND_REFUSED", &peerv1.ProposeRequest{Command: meta.SetStatus(sharding.NodeID(victim), 0, meta.StatusDown)}},
		{"it drains a member", peerv1connect.PeerServiceProposeProcedure, "KIND_REFUSED", &peerv1.ProposeRequest{Command: meta.SetDraining(sharding.NodeID(victim), 0, true)}},
		{"it places shards", peerv1connect.PeerServiceProposeProcedure, "KIND_REFUSED", &peerv1.ProposeRequest{Command: meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{sharding.NodeID(f.node)}})}},
		{"it retires a replica", peerv1connect.PeerServiceProposeProcedure, "KIND_REFUSED", &peerv1.ProposeRequest{Command: meta.Retire(0, meta.BootstrapReplica)}},
		{"it takes leaderships", peerv1connect.PeerServiceHandOverProcedure, "KIND_UNAVAILABLE", &peerv1.HandOverRequest{Transfers: transfers}},
	} {
		for i, n := range w.Nodes() {
			if i == forging {
				continue // a node does not accept calls in its own name
			}
			if status, text := f.call(n, f.node, f.starts[f.node], tt.path, tt.request); status == http.StatusOK || !strings.Contains(text, tt.fault) {
				t.Errorf("%s on %s: %d, %s", tt.name, n.ID(), status, text)
			}
		}
	}
	for _, m := range w.Overview(0).GetMembers() {
		if m.GetDraining() || m.GetStatus() != "up" {
			t.Errorf("member %v", m)
		}
	}
}

// A raft message must come from the node that has the sending replica.
func TestRaftMessageMustComeFromReplicasNode(t *testing.T) {
	w, f, forging := forgers(t)
	victim := w.Node(3 - forging)
	const ids, term = 16, 1 << 20
	frame := make([]byte, 8)
	frame[0] = 2 // version
	for to := uint64(2); to < ids; to++ {
		frame = append(frame, 1) // a heartbeat
		for _, v := range []uint64{0, uint64(meta.BootstrapReplica), to, term, 0} {
			frame = binary.AppendUvarint(frame, v)
		}
		frame = append(frame, 0)
	}
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(frame[8:], crc32.MakeTable(crc32.Castagnoli)))
	before := victim.Metrics()["hostd_raft_messages_forged_total"]
	calls := peerv1connect.NewPeerServiceClient(&http.Client{Transport: f.transport(victim)}, victim.PeerAPI())
	number := 0
	victim.Until("a link is taken", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		defer cancel()
		number++ // repeat until the number exceeds the number of the node's own link
		stream := calls.Link(ctx)
		f.hello(stream.RequestHeader())
		stream.RequestHeader().Set("Hostd-Link", strconv.Itoa(number))
		defer stream.CloseRequest()
		var err error
		for beat := uint64(1); err == nil && beat < 4; beat++ {
			if err = stream.Send(&peerv1.LinkRequest{Beat: beat, Frames: [][]byte{frame}}); err == nil {
				_, err = stream.Receive()
			}
		}
		return err
	})
	victim.Await("the message is refused", func() bool { return victim.Metrics()["hostd_raft_messages_forged_total"] > before })
	for _, s := range w.Shards(w.Place(victim.ID())) {
		if s.GetTerm() >= term {
			t.Errorf("shard %d is at term %d", s.GetShardId(), s.GetTerm())
		}
	}
}

// Streams are identified per node. A stream of another node with the same ID
// does not replace a node's stream.
func TestStreamsAreIdentifiedPerNode(t *testing.T) {
	w, f, forging := forgers(t)
	victim := w.Node(3 - forging)
	other := f
	other.config, other.node = as(f.own.pair(request("n1")), f.own), "n1"
	calls := peerv1connect.NewForwardServiceClient(&http.Client{Transport: other.transport(victim)}, victim.PeerAPI())
	stream := calls.Forward(t.Context())
	other.hello(stream.RequestHeader())
	stream.RequestHeader().Set("Hostd-Link", "forged")
	if err := stream.Send(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Receive(); err != nil { // greeting
		t.Fatal(err)
	}
	query := &peerv1.ForwardRequest_Item{Correlation: 7, Kind: peerv1.ForwardKind_QUERY, EntityType: "counter", EntityId: "x", Name: "total", RemainingMicros: uint64(testkit.Patience.Microseconds())}
	f.forward(victim, query)
	if err := stream.Send(&peerv1.ForwardRequest{Items: []*peerv1.ForwardRequest_Item{query}}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Receive()
	if err != nil || len(answer.GetItems()) != 1 || answer.GetItems()[0].GetCorrelation() != 7 {
		t.Errorf("behind a stream of the same name: %v, %v", answer, err)
	}
}
