package peertls

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/tests/support/testkit"
)

// betweenNodes returns all procedures that nodes call, and one client procedure
// that nodes forward.
func betweenNodes() (paths []string) {
	services := peerv1.File_hostd_peer_v1_peer_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for k := range methods.Len() {
			paths = append(paths, fmt.Sprintf("/%s/%s", services.Get(i).FullName(), methods.Get(k).Name()))
		}
	}
	return append(paths, "/hostd.hop/hostd.cluster.v1.ClusterService/PutSetting")
}

// forger is a node with a valid certificate of its own that makes false claims.
type forger struct {
	t       *testing.T
	config  *tls.Config
	cluster string
	node    string            // node of its certificate
	starts  map[string]uint64 // incarnations of the members
	own     authority

	principal string // principal that it claims for the caller; none if empty
}

// call calls a node in the name of another node, and returns the response.
func (f forger) call(to *testkit.Node, as string, incarnation uint64, path string, request proto.Message) (status int, text string) {
	f.t.Helper()
	body, err := protojson.Marshal(request)
	if err != nil {
		f.t.Fatal(err)
	}
	config := f.config.Clone()
	config.ServerName = to.ID() + ".example"
	transport := network.NewHTTPTransport(over{config: config}, network.HTTPOptions{DialTimeout: testkit.Patience, Idle: testkit.Patience})
	defer transport.CloseIdleConnections()
	to.Until(path+" is answered", func() error {
		ctx, cancel := context.WithTimeout(f.t.Context(), testkit.Patience)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.PeerAPI()+path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Hostd-Format": "1", "Hostd-Levels": fmt.Sprintf("%d-%d", sharding.SupportedVersions.Min, sharding.SupportedVersions.Max),
			"Hostd-Node": as, "Hostd-Incarnation": strconv.FormatUint(incarnation, 10), "Hostd-Cluster": f.cluster,
		} {
			r.Header.Set(name, value)
		}
		if f.principal != "" {
			r.Header.Set("Hostd-Principal", f.principal)
		}
		res, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		status, text = res.StatusCode, string(answer)
		return err
	})
	return status, text
}

// members returns the incarnations of the nodes that a node knows.
func (f *forger) members(of *testkit.Node) map[string]uint64 {
	f.t.Helper()
	status, text := f.call(of, f.node, 1, probe, &peerv1.ProbeRequest{})
	r := &peerv1.ProbeResponse{}
	if err := protojson.Unmarshal([]byte(text), r); err != nil || status != http.StatusOK {
		f.t.Fatalf("probe: %d, %s, %v", status, text, err)
	}
	f.cluster = r.GetClusterId()
	starts := map[string]uint64{}
	for _, m := range r.GetMembers() {
		starts[m.GetNodeId()] = m.GetIncarnation()
	}
	return starts
}

// A node with a certificate can make calls only in its own name. It cannot make
// calls in the name of another node, admit another node, raise another node's
// incarnation, or keep another node out.
func TestNodeCannotCallForAnother(t *testing.T) {
	own := newAuthority(t)
	w := newWorld(t, own)
	for i := range w.Nodes() {
		w.mode(i, "require")
	}
	w.Start()
	w.begin("counter")
	w.goesOn("before anything is forged")
	f := forger{t: t, config: as(own.pair(request("n2")), own), node: "n2"}
	before := f.members(w.Node(0))
	if len(before) != 3 {
		t.Fatalf("members %v", before)
	}
	soon := uint64(time.Now().Add(59 * time.Minute).UnixMilli())
	forged := meta.Member{Node: "n3", Address: w.Node(1).Address(), PeerAddress: strings.TrimPrefix(w.Node(1).PeerAPI(), "http://"), Incarnation: soon, Disk: "d", Speaks: sharding.SupportedVersions}
	asked := &peerv1.Member{NodeId: "n3", Address: forged.Address, PeerAddress: forged.PeerAddress, Incarnation: soon, DiskId: "d"}
	const identity, refused = "WRONG_IDENTITY", "KIND_REFUSED"
	for _, i := range []int{0, 1, 2} {
		n := w.Node(i)
		for _, path := range betweenNodes() {
			if status, text := f.call(n, "n3", soon, path, &peerv1.ProbeRequest{}); status != http.StatusForbidden || !strings.Contains(text, identity) {
				t.Errorf("%s as n3 on %s: %d, %s", path, n.ID(), status, text)
			}
		}
		if i == 1 {
			continue // n2 does not accept calls in its own name
		}
		for _, tt := range []struct {
			name, path, fault string
			request           proto.Message
		}{
			{"it joins as n3", peerv1connect.PeerServiceJoinProcedure, identity, &peerv1.JoinRequest{Member: asked}},
			{"it has n3 admitted", peerv1connect.PeerServiceProposeProcedure, identity, &peerv1.ProposeRequest{Command: meta.Join(forged)}},
			{"it puts n3", peerv1connect.PeerServiceProposeProcedure, identity, &peerv1.ProposeRequest{Command: meta.PutMember(forged)}},
			{"it founds with n3", peerv1connect.PeerServiceProposeProcedure, identity, &peerv1.ProposeRequest{Command: meta.CreateCluster(meta.Cluster{ID: "c", Shards: 1, Format: 1}, forged)}},
			{"it reports for n3", peerv1connect.PeerServiceReportProcedure, refused, &peerv1.ReportRequest{NodeId: "n3", Incarnation: soon}},
		} {
			if status, text := f.call(n, "n2", before["n2"], tt.path, tt.request); status == http.StatusOK || !strings.Contains(text, tt.fault) {
				t.Errorf("%s on %s: %d, %s", tt.name, n.ID(), status, text)
			}
		}
	}
	w.goesOn("after all that")
	if after := f.members(w.Node(0)); after["n3"] != before["n3"] || len(after) != 3 {
		t.Errorf("the members were %v, and are %v", before, after)
	}
	w.Restart(2)
	w.AwaitSpread()
	w.goesOn("with another start of n3")
	w.end()
}

// answering is a server with false answers to a node's calls, over TLS.
type answering struct {
	peerv1connect.UnimplementedPeerServiceHandler
	hello string // node ID in its headers
	node  string // node ID in its answers
	start uint64
}

func (a answering) Probe(context.Context, *connect.Request[peerv1.ProbeRequest]) (*connect.Response[peerv1.ProbeResponse], error) {
	return connect.NewResponse(&peerv1.ProbeResponse{NodeId: a.node, ClusterId: "c", Incarnation: a.start}), nil
}

func (a answering) Pledge(context.Context, *connect.Request[peerv1.PledgeRequest]) (*connect.Response[peerv1.PledgeResponse], error) {
	return connect.NewResponse(&peerv1.PledgeResponse{NodeId: a.node, To: "n1"}), nil
}

func (a answering) Vouch(context.Context, *connect.Request[peerv1.VouchRequest]) (*connect.Response[peerv1.VouchResponse], error) {
	return connect.NewResponse(&peerv1.VouchResponse{}), nil
}

func (a answering) ReadMeta(context.Context, *connect.Request[peerv1.ReadMetaRequest]) (*connect.Response[peerv1.ReadMetaResponse], error) {
	return connect.NewResponse(&peerv1.ReadMetaResponse{Index: 7}), nil
}

// serve starts the server with the certificate of a node.
func (a answering) serve(t *testing.T, of authority, certified string) (address string) {
	t.Helper()
	l, err := network.TCP{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peers, gossip := network.SplitOver(l, openPeers(t, newFiles(of, certified)).Accept)
	path, handler := peerv1connect.NewPeerServiceHandler(a)
	mux := http.NewServeMux()
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Hostd-Format": "1", "Hostd-Levels": fmt.Sprintf("%d-%d", sharding.SupportedVersions.Min, sharding.SupportedVersions.Max),
			"Hostd-Node": a.hello, "Hostd-Incarnation": strconv.FormatUint(a.start, 10), "Hostd-Cluster": "c",
		} {
			w.Header().Set(name, value)
		}
		handler.ServeHTTP(w, r)
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(peers)
	}()
	t.Cleanup(func() {
		server.Close()
		gossip.Close()
		<-ended
	})
	return l.Addr().String()
}

// overTLS dials other nodes as a node does.
type overTLS struct {
	network.TCP
	peers *certs.Peers
}

func (o overTLS) Dial(ctx context.Context, address string) (net.Conn, error) {
	return o.peers.Dial(ctx, address)
}

func openPeers(t *testing.T, f nodeFiles) *certs.Peers {
	t.Helper()
	p, err := certs.OpenPeers(certs.PeerOptions{
		Options: certs.Options{Files: f.Files}, Cluster: "hostd", Node: f.node, Network: network.TCP{}, HandshakeTimeout: testkit.Patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// noLoop is a raft loop without groups.
type noLoop struct{}

func (noLoop) Receive(sharding.NodeID, []byte) {}
func (noLoop) Turns() uint64                   { return 0 }

// A node with a certificate can answer only for itself: answers in the name of
// another node are rejected, and do not keep that node out.
func TestNodeCannotAnswerForAnother(t *testing.T) {
	own := newAuthority(t)
	p, err := peer.New(peer.Options{
		Self: "n1", Incarnation: 1, Cluster: "c", Network: overTLS{peers: openPeers(t, newFiles(own, "n1"))},
		Raft: noLoop{}, CallTimeout: testkit.Patience, SuspectAfter: testkit.Patience, StuckAfter: 4 * testkit.Patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	soon := uint64(time.Now().Add(59 * time.Minute).UnixMilli())
	ask := map[string]func(address string) error{
		"probe":       func(address string) error { _, err := p.Probe(t.Context(), address); return err },
		"probe alone": func(address string) error { _, err := p.ProbeAlone(t.Context(), address); return err },
		"pledge": func(address string) error {
			_, err := p.BootstrapVote(t.Context(), address, &peerv1.PledgeRequest{})
			return err
		},
		"vouch": func(address string) error {
			_, _, err := p.Attest(t.Context(), address, &peerv1.VouchRequest{})
			return err
		},
	}
	for _, tt := range []struct {
		name    string
		answers answering
		forged  []string
	}{
		{"its own name", answering{hello: "n2", node: "n2", start: 2}, nil},
		{"another's name", answering{hello: "n3", node: "n3", start: soon}, []string{"probe", "probe alone", "pledge", "vouch"}},
		{"another's name in the answer", answering{hello: "n2", node: "n3", start: soon}, []string{"probe", "probe alone", "pledge"}},
	} {
		address := tt.answers.serve(t, own, "n2")
		for name, call := range ask {
			err := call(address)
			if slices.Contains(tt.forged, name) != errors.Is(err, peer.ErrWrongIdentity) || err != nil && !errors.Is(err, peer.ErrWrongIdentity) {
				t.Errorf("%s under %s: %v", name, tt.name, err)
			}
		}
	}
	impostor, genuine := answering{hello: "n3", node: "n3", start: soon}.serve(t, own, "n2"), answering{hello: "n3", node: "n3", start: 3}.serve(t, own, "n3")
	p.SetAddresses(map[sharding.NodeID]string{"n3": impostor})
	if _, err := p.ReadMeta(t.Context(), "n3"); !errors.Is(err, peer.ErrWrongIdentity) {
		t.Errorf("who pretends to be n3 is heard: %v", err)
	}
	p.SetAddresses(map[sharding.NodeID]string{"n3": genuine})
	if index, err := p.ReadMeta(t.Context(), "n3"); err != nil || index != 7 {
		t.Errorf("n3 itself: %d, %v", index, err)
	}
}
