package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/hostd/hostd/api/client"
	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/membership"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/tests/support/testkit"
)

const peerPath = "/hostd.peer.v1.PeerService/"

// levels is the range of cluster versions that this release supports.
var levels = fmt.Sprintf("%d-%d", sharding.SupportedVersions.Min, sharding.SupportedVersions.Max)

// impostor calls nodes as another node would, with information that anybody can
// get.
type impostor struct {
	t       testing.TB
	cluster *testkit.Cluster
	id      string // cluster ID
}

func newImpostor(t testing.TB, c *testkit.Cluster) *impostor {
	i := &impostor{t: t, cluster: c}
	i.id = i.probe(0).GetClusterId()
	return i
}

// call calls a node in the name of another node.
func (i *impostor) call(to int, as string, incarnation uint64, procedure string, request, answer proto.Message) (status int, text string) {
	i.t.Helper()
	body, err := protojson.Marshal(request)
	if err != nil {
		i.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(i.t.Context(), testkit.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.cluster.Node(to).PeerAPI()+peerPath+procedure, bytes.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Hostd-Format", "1")
	r.Header.Set("Hostd-Levels", levels)
	r.Header.Set("Hostd-Node", as)
	r.Header.Set("Hostd-Incarnation", strconv.FormatUint(incarnation, 10))
	if i.id != "" {
		r.Header.Set("Hostd-Cluster", i.id)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		i.t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	if strings.Contains(string(out), peerv1.Fault_KIND_FORMAT.String()) {
		i.t.Errorf("%s of node %s is not looked at: %s", procedure, as, out)
	}
	if res.StatusCode == http.StatusOK {
		if err := protojson.Unmarshal(out, answer); err != nil {
			i.t.Fatal(err)
		}
	}
	return res.StatusCode, string(out)
}

func (i *impostor) probe(node int) *peerv1.ProbeResponse {
	i.t.Helper()
	r := &peerv1.ProbeResponse{}
	if status, text := i.call(node, "x", 1, "Probe", &peerv1.ProbeRequest{}, r); status != http.StatusOK {
		i.t.Fatalf("probe: %d %s", status, text)
	}
	return r
}

// member returns a node's entry in the list of members.
func (i *impostor) member(id string) *peerv1.Member {
	i.t.Helper()
	for _, m := range i.probe(0).GetMembers() {
		if m.GetNodeId() == id {
			return m
		}
	}
	i.t.Fatalf("no member %s", id)
	return nil
}

// serves runs a command in every shard.
func serves(t testing.TB, c *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for id := range 12 {
		if _, err := c.Send(ctx, client.Command{EntityType: "counter", EntityID: strconv.Itoa(id), Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
			t.Fatalf("a neighbour's command: %v", err)
		}
	}
}

// hears waits until a node receives raft frames that another node sent after
// this call.
func hears(c *testkit.Cluster, node int, from string, load func()) {
	received := func() (n float64) {
		res, err := http.Get(c.Node(node).API() + "/metrics")
		if err != nil {
			return 0
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "hostd_peer_bytes_received_total{") && strings.Contains(line, `"`+from+`"`) {
				n, _ = strconv.ParseFloat(strings.TrimSpace(line[strings.Index(line, "}")+1:]), 64)
			}
		}
		return n
	}
	before := received()
	c.Await("frames of "+from+" arrive", func() bool {
		load()
		return received() > before+10_000
	})
}

func soon() uint64 { return uint64(time.Now().Add(59 * time.Minute).UnixMilli()) }

// TestForgedStartsDoNotLockOutMember checks that a stranger that claims to be a
// member, with any incarnation, keeps out neither the member itself nor the
// member's next process.
func TestForgedStartsDoNotLockOutMember(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	beside := c.Client(client.Options{})
	i := newImpostor(t, c)
	for _, incarnation := range []uint64{math.MaxUint64, uint64(time.Now().Add(61 * time.Minute).UnixMilli())} {
		if status, text := i.call(0, "n2", incarnation, "ReadMeta", &peerv1.ReadMetaRequest{}, &peerv1.ReadMetaResponse{}); !strings.Contains(text, "in the future") {
			t.Errorf("a start at %d: %d %s", incarnation, status, text)
		}
	}
	for _, to := range []int{0, 2} {
		i.call(to, "n2", soon(), "ReadMeta", &peerv1.ReadMetaRequest{}, &peerv1.ReadMetaResponse{})
	}
	for _, to := range []int{0, 2} {
		hears(c, to, "n2", func() { serves(t, beside) })
	}
	c.Restart(1)
	c.AwaitSpread()
	hears(c, 0, "n2", func() { serves(t, beside) })
}

// TestForgedAdmissionIsRejected checks that a stranger is not admitted in the
// name of a member, not even by a metadata command, and that the member
// continues, also after a restart.
func TestForgedAdmissionIsRejected(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	i := newImpostor(t, c)
	before := i.member("n3")
	leader := c.Place(i.probe(0).GetLeader())
	speaker := "n1"
	if leader == 0 {
		speaker = "n2"
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stranger := &stranger{cluster: i.id}
	stranger.serve(t, l)
	forged := func(change func(*peerv1.Member)) *peerv1.Member {
		m := proto.CloneOf(before)
		m.Incarnation = soon()
		change(m)
		return m
	}
	for name, m := range map[string]*peerv1.Member{
		"the highest start":             forged(func(m *peerv1.Member) { m.Incarnation = math.MaxUint64 }),
		"a later start":                 forged(func(*peerv1.Member) {}),
		"another disk":                  forged(func(m *peerv1.Member) { m.DiskId = "other" }),
		"another address":               forged(func(m *peerv1.Member) { m.Address = l.Addr().String() }),
		"an address of none":            forged(func(m *peerv1.Member) { m.Address = "127.255.255.1:1" }),
		"this start, clients elsewhere": forged(func(m *peerv1.Member) { m.Incarnation, m.Address = before.GetIncarnation(), l.Addr().String() }),
		"this start, nodes elsewhere":   forged(func(m *peerv1.Member) { m.Incarnation, m.PeerAddress = before.GetIncarnation(), l.Addr().String() }),
		"this start, nodes nowhere":     forged(func(m *peerv1.Member) { m.Incarnation, m.PeerAddress = before.GetIncarnation(), "" }),
		"nodes elsewhere":               forged(func(m *peerv1.Member) { m.PeerAddress = l.Addr().String() }),
	} {
		stranger.as.Store(m)
		if status, text := i.call(leader, "n3", m.GetIncarnation(), "Join", &peerv1.JoinRequest{Member: m}, &peerv1.JoinResponse{}); status == http.StatusOK {
			t.Errorf("%s joins: %s", name, text)
		}
		command := meta.Join(meta.Member{Node: "n3", Address: m.GetAddress(), PeerAddress: m.GetPeerAddress(), Incarnation: m.GetIncarnation(), Disk: m.GetDiskId(), Speaks: sharding.SupportedVersions})
		status, text := i.call(leader, speaker, i.member(speaker).GetIncarnation(), "Propose", &peerv1.ProposeRequest{Command: command}, &peerv1.ProposeResponse{})
		if status == http.StatusOK {
			t.Errorf("%s is proposed: %s", name, text)
		}
	}
	if after := i.member("n3"); !proto.Equal(before, after) {
		t.Errorf("the member was %v, is %v", before, after)
	}
	if !stranger.asked.Load() {
		t.Error("nobody has asked the stranger who it is")
	}
	beside := c.Client(client.Options{})
	c.Restart(2)
	c.AwaitSpread()
	hears(c, 0, "n3", func() { serves(t, beside) })
}

// stranger answers probes as if it were a member, with information that anybody
// can get.
type stranger struct {
	peerv1connect.UnimplementedPeerServiceHandler
	cluster string
	as      atomic.Pointer[peerv1.Member]
	asked   atomic.Bool
}

func (s *stranger) serve(t testing.TB, l net.Listener) {
	path, handler := peerv1connect.NewPeerServiceHandler(s)
	mux := http.NewServeMux()
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		m := s.as.Load()
		w.Header().Set("Hostd-Format", "1")
		w.Header().Set("Hostd-Levels", levels)
		w.Header().Set("Hostd-Cluster", s.cluster)
		w.Header().Set("Hostd-Node", m.GetNodeId())
		w.Header().Set("Hostd-Incarnation", strconv.FormatUint(m.GetIncarnation(), 10))
		handler.ServeHTTP(w, r)
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: testkit.Patience}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
}

func (s *stranger) Probe(context.Context, *connect.Request[peerv1.ProbeRequest]) (*connect.Response[peerv1.ProbeResponse], error) {
	s.asked.Store(true)
	m := s.as.Load()
	return connect.NewResponse(&peerv1.ProbeResponse{NodeId: m.GetNodeId(), Incarnation: m.GetIncarnation(), ClusterId: s.cluster, Address: m.GetAddress()}), nil
}

// TestForgedGossipRedirectsNothing checks that a stranger that claims by gossip to be a
// member, at its own address, receives no traffic that is meant for the member.
func TestForgedGossipRedirectsNothing(t *testing.T) {
	testkit.Long(t, "long")
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	i := newImpostor(t, c)
	l, err := network.TCP{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests, gossip := network.Split(l)
	dialed := make(chan struct{}, 1)
	go func() {
		for {
			conn, err := requests.Accept()
			if err != nil {
				return
			}
			conn.Close()
			select {
			case dialed <- struct{}{}:
			default:
			}
		}
	}()
	defer requests.Close()
	stranger, err := membership.Start(t.Context(), membership.Options{
		Node: "n2", Incarnation: soon(), Address: l.Addr().String(), Cluster: i.id, Disk: i.member("n2").GetDiskId(), Label: "hostd",
		Seeds: []string{strings.TrimPrefix(c.Node(0).PeerAPI(), "http://")}, Transport: network.NewGossip(network.TCP{}, nil, gossip),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close(context.Background())
	c.Await("the stranger gossips with the others", func() bool {
		seen := map[sharding.NodeID]bool{}
		for _, p := range stranger.Nodes() {
			seen[p.ID] = p.Reachable
		}
		return seen["n1"] && seen["n3"]
	})
	beside := c.Client(client.Options{})
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		serves(t, beside)
	}
	c.Push("account")
	select {
	case <-dialed:
		t.Error("a node has called the stranger for n2")
	default:
	}
	for _, to := range []int{0, 2} {
		hears(c, to, "n2", func() { serves(t, beside) })
	}
}

// TestAnnouncedModuleAllocatesNoMemory checks that a module that is announced but
// not sent allocates no memory.
func TestAnnouncedModuleAllocatesNoMemory(t *testing.T) {
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	i := newImpostor(t, c)
	member := i.member("n2") // only a caller that claims to be a member gets this far
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	peers := peerv1connect.NewPeerServiceClient(&http.Client{Transport: transport}, c.Node(0).PeerAPI())
	const announced, streams = 64 << 20, 32
	before := metric(t, c.Node(0), "go_memstats_alloc_bytes_total")
	for range streams {
		stream := peers.PutBlob(t.Context())
		stream.RequestHeader().Set("Hostd-Format", "1")
		stream.RequestHeader().Set("Hostd-Levels", levels)
		stream.RequestHeader().Set("Hostd-Node", member.GetNodeId())
		stream.RequestHeader().Set("Hostd-Incarnation", strconv.FormatUint(member.GetIncarnation(), 10))
		stream.RequestHeader().Set("Hostd-Cluster", i.id)
		if err := stream.Send(&peerv1.PutBlobRequest{Chunk: []byte{0}, Digest: make([]byte, 32), Size: announced}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.CloseAndReceive(); err == nil {
			t.Error("a module of another digest is taken")
		}
	}
	if took := metric(t, c.Node(0), "go_memstats_alloc_bytes_total") - before; took > streams*announced/8 {
		t.Errorf("%d modules of a byte each took %.0f bytes", streams, took)
	}
}

// metric reads a metric without labels.
func metric(t testing.TB, n *testkit.Node, name string) float64 {
	t.Helper()
	return metricFrom(t, n, "127.0.0.1", name)
}

// metricFrom is metric over a separate connection from a given IP address.
func metricFrom(t testing.TB, n *testkit.Node, ip, name string) float64 {
	t.Helper()
	transport := transportFrom(t, ip)
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport, Timeout: testkit.Patience}).Get(n.API() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
