package security

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/hostd/hostd/api/client"
	_ "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	_ "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	_ "github.com/hostd/hostd/api/gen/hostd/journal/v1"
	_ "github.com/hostd/hostd/api/gen/hostd/module/v1"
	_ "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	_ "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// procedures returns all registered procedures.
func procedures() (out []string) {
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(f.Package()), "hostd.") {
			return true
		}
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for k := range s.Methods().Len() {
				out = append(out, fmt.Sprintf("/%s/%s", s.FullName(), s.Methods().Get(k).Name()))
			}
		}
		return true
	})
	slices.Sort(out)
	return out
}

// TestTableHasEveryProcedure checks that the table has exactly the procedures
// in the registry, which contains the procedures of all protos.
func TestTableHasEveryProcedure(t *testing.T) {
	all := procedures()
	for _, p := range all {
		if _, ok := table[p]; !ok {
			t.Errorf("%s is not in the table: say who may reach it on which listener", p)
		}
	}
	for p, r := range table {
		if !slices.Contains(all, p) {
			t.Errorf("%s of the table is no procedure", p)
		}
		for _, l := range listeners {
			for _, c := range credentials {
				if r[l][c] == "" {
					t.Errorf("%s: nothing is said of %s on the listener for %s", p, c, l)
				}
			}
		}
	}
	rpc, written := regexp.MustCompile(`(?m)^  rpc \w+\(`), 0
	err := filepath.WalkDir(filepath.Join("..", "..", "api", "proto", "hostd"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		written += len(rpc.FindAll(text, -1))
		return err
	})
	if err != nil || written != len(all) {
		t.Errorf("%d procedures are registered, %d are in the protos: import the package of each (%v)", len(all), written, err)
	}
}

// TestEachListenerHasItsProcedures calls every procedure on each listener of a
// node, and checks the access against the table. The body has a content type
// that no procedure accepts, so a procedure that is reached returns that error
// and does nothing.
func TestEachListenerHasItsProcedures(t *testing.T) {
	two := testkit.NewCluster(t, 2, testkit.ClusterOptions{})
	two.Start()
	node := two.Node(0)
	if two.Leader(0) != 0 {
		node = two.Node(1)
	}
	transport := network.NewHTTPTransport(network.TCP{}, network.HTTPOptions{})
	defer transport.CloseIdleConnections()
	calls := &http.Client{Transport: transport}
	cluster, other := clusterOf(t, node), two.Node(1-two.Place(node.ID())).ID()
	two.Kill(two.Place(other)) // the other node's links would interfere
	want := map[string]rule{}
	for p, r := range table {
		want[p] = r
		hop := hopPath + p
		if slices.Contains(hopped, strings.Split(p, "/")[1]) {
			want[hop] = betweenNodes
		}
	}
	for p, r := range plain {
		want[p] = r
	}
	for path, r := range want {
		for l, url := range map[listener]string{clients: node.API(), peers: node.PeerAPI()} {
			for _, c := range credentials {
				status := call(t, calls, url+path, c, cluster, other)
				got := reached
				switch {
				case status == http.StatusNotFound:
					got = absent
				case status != http.StatusUnsupportedMediaType && status != http.StatusMethodNotAllowed && status != http.StatusOK:
					got = refused
				}
				if got != r[l][c] {
					t.Errorf("%s by %s on the listener for %s is %s (%d), the table says %s", path, c, l, got, status, r[l][c])
				}
			}
		}
	}
}

// clusterOf returns the ID of a node's cluster, which any caller can get.
func clusterOf(t *testing.T, node *testkit.Node) string {
	t.Helper()
	res, err := http.Get(node.API() + "/nothing")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	id := res.Header.Get("Hostd-Cluster")
	if id == "" {
		t.Fatal("the node names no cluster")
	}
	return id
}

// call makes a call with a credential and returns the status.
func call(t *testing.T, calls *http.Client, url string, as credential, cluster, joined string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	method, body := http.MethodPost, io.Reader(strings.NewReader("?"))
	if strings.HasSuffix(url, "z") || strings.HasSuffix(url, "/metrics") {
		method, body = http.MethodGet, nil
	}
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "text/none")
	switch as {
	case anonymous:
	case hello, member:
		r.Header.Set("Hostd-Format", "1")
		r.Header.Set("Hostd-Levels", fmt.Sprintf("%d-%d", sharding.SupportedVersions.Min, sharding.SupportedVersions.Max))
		r.Header.Set("Hostd-Node", "n9")
		if as == member {
			r.Header.Set("Hostd-Node", joined)
		}
		// The first incarnation of a node is up to some seconds ahead of the
		// clock, and a lower incarnation is rejected.
		r.Header.Set("Hostd-Incarnation", strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10))
		r.Header.Set("Hostd-Cluster", cluster)
	default:
		t.Fatalf("nothing is known of %s", as)
	}
	res, err := calls.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	if at := res.Header.Get(network.PeerAddressHeader); at != "" && res.StatusCode != http.StatusNotFound {
		t.Errorf("%s is answered with %d, and refers to %s", url, res.StatusCode, at)
	}
	return res.StatusCode
}

// TestClientListenerClosesGossip checks that the listener for clients closes a gossip
// connection, and that the listener for nodes waits for its messages.
func TestClientListenerClosesGossip(t *testing.T) {
	node := testkit.StartNode(t, testkit.NodeOptions{})
	dial := func(url string) net.Conn {
		conn, err := network.DialGossip(t.Context(), network.TCP{}, strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	spoken, refused := dial(node.PeerAPI()), dial(node.API())
	defer spoken.Close()
	defer refused.Close()
	refused.SetReadDeadline(time.Now().Add(testkit.Patience))
	if _, err := refused.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("gossip on the listener for clients: %v", err)
	}
	// This connection was opened later, and must already be closed.
	spoken.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := spoken.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("gossip on the listener for other nodes: %v", err)
	}
}

// TestClientsDoNotLockOutNodes: clients hold as many connections as they can
// get, and send calls for nodes to the listener for clients. Meanwhile a node
// must be able to join through the listener for nodes, and health probes on the
// listener for clients must be answered.
func TestClientsDoNotLockOutNodes(t *testing.T) {
	c := testkit.NewCluster(t, 1, testkit.ClusterOptions{})
	c.Start()
	f := &flood{t: t, at: c.Node(0).Address()}
	defer f.end()
	c.Node(0).Await("no client has a place any more", func() bool { return f.occupy(1024) })
	f.knock()
	// Connections that become free are taken again until the node has joined.
	stop := make(chan struct{})
	var filling sync.WaitGroup
	filling.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				f.occupy(64)
			}
		}
	})
	transport := &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 99, 250)}}).DialContext}
	probes := &http.Client{Transport: transport, Timeout: testkit.Patience}
	c.Node(0).Until("a probe is answered", func() error {
		res, err := probes.Get(c.Node(0).API() + "/livez")
		if err != nil {
			return err
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	})
	n2 := c.Add()
	close(stop)
	filling.Wait()
	joined(t, n2, 2)
}

// flood opens client connections to a node from many addresses. Only one
// goroutine at a time may call its methods.
type flood struct {
	t    *testing.T
	at   string
	from int
	held []net.Conn
}

func (f *flood) end() {
	for _, conn := range f.held {
		conn.Close()
	}
}

// ask opens a connection and sends the beginning of a request. It returns nil
// if the node closes the connection at once.
func (f *flood) ask(host int, request string) net.Conn {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 99, byte(host))}}
	conn, err := dialer.DialContext(f.t.Context(), "tcp", f.at)
	if err != nil {
		return nil
	}
	f.held = append(f.held, conn)
	io.WriteString(conn, request)
	return conn
}

// occupy opens n connections with unfinished requests. It reports whether
// clients can get no further connection.
func (f *flood) occupy(n int) (full bool) {
	for range n {
		f.from++
		f.ask(1+f.from%8, "POST /hostd.entity.v1.EntityService/SendCommand HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	}
	conn := f.ask(20, "POST /hostd.entity.v1.EntityService/SendCommand HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n")
	if conn == nil {
		return false
	}
	// If the request is accepted, the node does not answer before the body has
	// arrived.
	conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// knock sends a call for nodes on more connections than the node has in
// reserve, waits for the answers, and keeps the connections open.
func (f *flood) knock() {
	for i := range 9 {
		for range 32 {
			if conn := f.ask(101+i, "GET /hostd.peer.v1.PeerService/Probe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); conn != nil {
				conn.SetReadDeadline(time.Now().Add(testkit.Patience))
				_, _ = conn.Read(make([]byte, 1)) // answered or closed at once
			}
		}
	}
}

// joined waits until a node sees all members of its cluster as up.
func joined(t *testing.T, n *testkit.Node, members int) {
	t.Helper()
	cl := n.Client(client.Options{Timeout: testkit.Patience})
	n.Until("all members are up", func() error {
		c, err := cl.Cluster(t.Context())
		if err != nil {
			return err
		}
		for _, m := range c.GetMembers() {
			if m.GetStatus() != "up" || !m.GetReachable() {
				return fmt.Errorf("%s is %s, reachable: %v", m.GetNodeId(), m.GetStatus(), m.GetReachable())
			}
		}
		if len(c.GetMembers()) != members {
			return fmt.Errorf("%d members", len(c.GetMembers()))
		}
		return nil
	})
}

// TestSeedsMayBeAddressesForClients checks that a seed may be the address that
// a node has for clients. The node then returns its address for nodes.
func TestSeedsMayBeAddressesForClients(t *testing.T) {
	c := testkit.NewCluster(t, 1, testkit.ClusterOptions{})
	c.Start()
	seed := strings.TrimPrefix(c.Node(0).API(), "http://")
	n2 := testkit.StartNode(t, testkit.NodeOptions{ID: "n2", Flags: []string{"--seeds", seed}})
	joined(t, n2, 2)
	members, err := n2.Client(client.Options{}).Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members.GetMembers() {
		if m.GetAddress() != map[string]string{"n1": seed, "n2": strings.TrimPrefix(n2.API(), "http://")}[m.GetNodeId()] {
			t.Errorf("clients are told that %s is at %s", m.GetNodeId(), m.GetAddress())
		}
		if m.GetPeerAddress() != map[string]string{"n1": peerAddress(c.Node(0)), "n2": peerAddress(n2)}[m.GetNodeId()] {
			t.Errorf("clients are told that nodes reach %s at %s", m.GetNodeId(), m.GetPeerAddress())
		}
	}
}

// peerAddress returns the address at which a node serves other nodes.
func peerAddress(n *testkit.Node) string { return strings.TrimPrefix(n.PeerAPI(), "http://") }

// TestUnprotectedListenersAreLogged checks that a configuration of the previous
// release still works, and that the log says which protection each listener
// lacks and which flag is new.
func TestUnprotectedListenersAreLogged(t *testing.T) {
	node := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--advertise", "192.0.2.1:0", "--insecure-listen"}})
	for _, want := range []string{"clients may connect without TLS", "clients do not have to authenticate", "nodes may connect to each other without TLS", "set insecure-peers"} {
		node.Await("the log says: "+want, func() bool { return strings.Contains(node.Log(), want) })
	}
}
