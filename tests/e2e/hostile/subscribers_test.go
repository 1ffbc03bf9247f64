package hostile

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// transportFrom returns a transport that connects from a loopback IP address.
func transportFrom(t testing.TB, ip string) *http.Transport {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// entitiesFrom returns a client over HTTP/2 from an IP address, with a
// connection of its own.
func entitiesFrom(t testing.TB, n *testkit.Node, ip string) entityv1connect.EntityServiceClient {
	transport := transportFrom(t, ip)
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	return entityv1connect.NewEntityServiceClient(&http.Client{Transport: transport}, n.API())
}

// addsFrom runs a command over a connection of its own from an IP address.
func addsFrom(t testing.TB, n *testkit.Node, ip, id string) error {
	transport := transportFrom(t, ip)
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: testkit.Patience}
	res, err := c.Post(n.API()+entityPath+"SendCommand", "application/json",
		strings.NewReader(fmt.Sprintf(`{"entityType":"counter","entityId":%q,"command":"add","json":{"amount":1}}`, id)))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%d %s", res.StatusCode, text)
	}
	return err
}

// TestDamagedCursorIsRejected checks that a truncated, modified or invented
// cursor is rejected as damaged, that an empty cursor starts at the beginning,
// and that a valid cursor continues.
func TestDamagedCursorIsRejected(t *testing.T) {
	t.Parallel()
	node := testkit.StartNode(t, testkit.NodeOptions{})
	beside := newNeighbour(t, node)
	for range 10 {
		beside.adds()
	}
	read := func(cursor string, most int) (last string, n int, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		defer cancel()
		for d, err := range beside.client.Subscribe(ctx, client.Subscription{EntityType: "counter", Cursor: cursor}) {
			if err != nil {
				return last, n, err
			}
			last = d.Cursor()
			if n++; n == most {
				break
			}
		}
		return last, n, nil
	}
	half, _, err := read("", 4)
	if err != nil {
		t.Fatal(err)
	}
	random := make([]byte, 40)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	flipped := []byte(half)
	flipped[len(flipped)/2] ^= 1
	entities := entitiesFrom(t, node, "127.0.0.1")
	for name, cursor := range map[string]string{
		"one letter": "A", "short": "AQID", "cut": half[:len(half)-1], "longer": half + "A", "twice": half + half, "changed": string(flipped),
		"random": base64.RawURLEncoding.EncodeToString(random), "no text of this kind": "../../etc/passwd%00", "10,000 letters": strings.Repeat("A", 10_000),
		"10,000 random bytes": base64.RawURLEncoding.EncodeToString(bytes.Repeat(random, 250)), "100,000 letters": strings.Repeat("A", 100_000),
	} {
		stream, err := entities.SubscribeEvents(t.Context(), connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: "counter", Cursor: cursor}))
		if err == nil {
			if stream.Receive() {
				t.Errorf("%s: %v", name, stream.Msg())
			}
			err = stream.Err()
			stream.Close()
		}
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
		beside.adds()
	}
	if _, n, err := read("", 0); err != nil || n != beside.added {
		t.Errorf("from the beginning: %d events of %d, %v", n, beside.added, err)
	}
	if _, n, err := read(half, 0); err != nil || n != beside.added-4 {
		t.Errorf("from the true cursor: %d events of %d, %v", n, beside.added-4, err)
	}
}

// TestUnreadSubscriptionsAreBounded opens 1,100 subscriptions from one address
// without reading them. The node accepts only as many as one address may have.
// Meanwhile a neighbour's commands and subscription must continue, and new
// subscriptions must be possible when the unread subscriptions have ended.
func TestUnreadSubscriptionsAreBounded(t *testing.T) {
	t.Parallel()
	const asked, most = 1100, 512 // half of the node's maximum
	node := testkit.StartNode(t, testkit.NodeOptions{})
	beside := newNeighbour(t, node)
	for range 20 {
		beside.adds()
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	subscribe := func(ctx context.Context, from entityv1connect.EntityServiceClient) (*connect.ServerStreamForClient[entityv1.SubscribeEventsResponse], error) {
		return from.SubscribeEvents(ctx, connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: "counter", Follow: true}))
	}
	var crowd entityv1connect.EntityServiceClient
	taken, refused := 0, 0
	for i := range asked {
		if i%200 == 0 {
			crowd = entitiesFrom(t, node, "127.0.0.9")
		}
		stream, err := subscribe(ctx, crowd)
		if err == nil && taken >= most && !stream.Receive() {
			err = stream.Err()
		}
		switch {
		case err == nil:
			taken++
		case connect.CodeOf(err) == connect.CodeResourceExhausted:
			refused++
		default:
			t.Fatalf("subscription %d: %v", i, err)
		}
	}
	if taken != most || refused != asked-most {
		t.Errorf("%d subscriptions of an address are taken, %d refused, want %d and %d", taken, refused, most, asked-most)
	}
	other, err := subscribe(t.Context(), entitiesFrom(t, node, "127.0.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		beside.adds()
	}
	events := 0
	for events < beside.added && other.Receive() {
		if other.Msg().GetSequence() > 0 {
			events++
		}
	}
	if events != beside.added {
		t.Errorf("another address gets %d of %d events: %v", events, beside.added, other.Err())
	}
	end()
	node.Await("there is room again", func() bool {
		stream, err := subscribe(t.Context(), entitiesFrom(t, node, "127.0.0.9"))
		ok := err == nil && stream.Receive()
		if err == nil {
			go stream.Close()
		}
		return ok
	})
}

// TestOneAddressCannotExhaustCluster opens idle connections, and 4,096
// connections with unfinished requests, to a node from one address. Each node
// must still execute commands from other addresses, health probes from the same
// address must be answered, and old and new links between the nodes must work.
func TestOneAddressCannotExhaustCluster(t *testing.T) {
	const idle, conns = 1024, 1024 + 4096
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	node := c.Node(0)
	elections := func() (n float64) {
		for _, node := range c.Nodes() {
			n += metricFrom(t, node, "127.0.0.50", "hostd_raft_elections_won_total")
		}
		return n
	}
	before := elections()
	at := strings.TrimPrefix(node.API(), "http://")
	var held []net.Conn
	defer func() {
		for _, conn := range held {
			conn.Close()
		}
	}()
	// Nodes call each other from 127.0.0.1, too.
	for i := range conns {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		held = append(held, conn)
		if i < idle {
			io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		} else {
			io.WriteString(conn, "POST "+entityPath+"Send HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		}
		if i%512 == 511 {
			for n := range c.Nodes() {
				if err := addsFrom(t, c.Node(n), fmt.Sprintf("127.0.0.%d", 2+i/512), fmt.Sprint(i)); err != nil {
					t.Errorf("with %d connections, another address at node %d: %v", i+1, n, err)
				}
			}
			// A connection is idle until its request has arrived. Connections that the
			// node has not accepted yet may displace it before that, so the probe is
			// retried.
			node.Until(fmt.Sprintf("a probe beside %d connections is answered", i+1), func() error {
				res, err := (&http.Client{Transport: transportFrom(t, "127.0.0.1"), Timeout: testkit.Patience}).Get(node.API() + "/livez")
				if err != nil {
					return err
				}
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					return fmt.Errorf("status %d", res.StatusCode)
				}
				return nil
			})
		}
	}
	for id := range 12 { // one entity in every shard
		for n := range c.Nodes() {
			if err := addsFrom(t, c.Node(n), "127.0.0.77", fmt.Sprint("other-", id)); err != nil {
				t.Errorf("another address at node %d: %v", n, err)
			}
		}
	}
	if n := elections() - before; n != 0 {
		t.Errorf("%.0f elections", n)
	}
	c.Restart(1) // the node's links are created again
	c.Await("the node that was started is heard", func() bool {
		o := c.Overview(2)
		if o == nil {
			return false
		}
		for _, m := range o.GetMembers() {
			if !m.GetReachable() {
				return false
			}
		}
		return true
	})
	for n := range c.Nodes() {
		if err := addsFrom(t, c.Node(n), "127.0.0.78", "after"); err != nil {
			t.Errorf("after a restart, another address at node %d: %v", n, err)
		}
	}
}
