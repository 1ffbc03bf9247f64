package upgrade

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/testkit"
)

// door is a port in front of a node, like a firewall or a load balancer. It
// forwards connections to one address, and closes them if the address is empty.
type door struct {
	listener net.Listener
	mu       sync.Mutex
	to       string
	open     map[net.Conn]struct{}
	tasks    sync.WaitGroup
}

func openDoor(t *testing.T) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{listener: l, open: map[net.Conn]struct{}{}}
	d.tasks.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			d.tasks.Go(func() { d.pass(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		d.leadTo("")
		d.tasks.Wait()
	})
	return d
}

// leadTo sets the destination, and closes connections to other destinations.
func (d *door) leadTo(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = address
	for conn := range d.open {
		conn.Close()
	}
}

func (d *door) address() string { return d.listener.Addr().String() }

// keep registers a connection. It returns false if the destination has changed
// meanwhile.
func (d *door) keep(conn net.Conn, to string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.to != to {
		return false
	}
	d.open[conn] = struct{}{}
	return true
}

func (d *door) pass(conn net.Conn) {
	defer conn.Close()
	d.mu.Lock()
	to := d.to
	d.mu.Unlock()
	if to == "" || !d.keep(conn, to) {
		return
	}
	inside, err := net.Dial("tcp", to)
	if err == nil {
		defer inside.Close()
		if d.keep(inside, to) {
			back := make(chan struct{})
			go func() {
				defer close(back)
				io.Copy(conn, inside)
				conn.Close()
			}()
			io.Copy(inside, conn)
			inside.Close()
			<-back
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, conn)
	delete(d.open, inside)
}

// TestFinalizeNeedsReachablePeerListeners upgrades a cluster of the first release
// and checks that its cluster version is not raised while other nodes cannot reach a
// node's port for nodes, or reach something else at that address, because nodes use
// only that port from then on. The report names the nodes and the address.
func TestFinalizeNeedsReachablePeerListeners(t *testing.T) {
	testkit.Long(t, "upgrade")
	c := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: shards, Program: first.program(t), OneListener: true})
	c.StopAll()
	d := openDoor(t)
	for i := range nodes {
		n := c.Node(i)
		n.Use(testkit.Program(t))
		if i == nodes-1 {
			n.SetFlags(append(n.Flags(), "--peer-advertise", d.address())...)
		}
	}
	c.Start()
	n1, n2, behind := c.Node(0), c.Node(1), c.Node(nodes-1)
	asks := n1.Client(client.Options{Timeout: testkit.Patience})
	for what, to := range map[string]string{
		"a port that is closed": "", "its own port for clients": behind.Address(), "the port of another node": strings.TrimPrefix(n2.PeerAPI(), "http://"),
	} {
		d.leadTo(to)
		// A member that answers slowly is also reported as an obstacle, for a
		// moment.
		n1.Until("the node and nothing else stands in the way, with "+what, func() error {
			said, err := asks.FinalizeUpgrade(t.Context(), 0, true)
			if err != nil || said.GetClusterVersion() != 1 || len(said.GetNodes()) != nodes {
				t.Fatalf("what stands in the way, with %s: %v, %v", what, said, err)
			}
			for _, n := range said.GetNodes() {
				names := []string{"node " + behind.ID(), d.address(), n1.ID() + " (", n2.ID() + " ("}
				missing := func(s string) bool { return !strings.Contains(n.GetObstacle(), s) }
				if n.GetNodeId() != behind.ID() && n.GetObstacle() != "" || n.GetNodeId() == behind.ID() && slices.ContainsFunc(names, missing) {
					return fmt.Errorf("%s: %q", n.GetNodeId(), n.GetObstacle())
				}
			}
			return nil
		})
		n1.Until("the raise is refused for the address, with "+what, func() error {
			said, err := asks.FinalizeUpgrade(t.Context(), 0, false)
			if err == nil {
				t.Fatalf("raised, with %s: %v", what, said)
			}
			if !strings.Contains(err.Error(), d.address()) {
				return err
			}
			return nil
		})
	}
	n1.Until("the command line says it", func() error {
		out, code := n1.Run("cluster", "upgrade", "finalize", "--dry-run", "--addr", n1.API(), "--timeout", fmt.Sprint(testkit.Patience))
		if code != 0 || !strings.Contains(out, "node "+behind.ID()+" is unreachable at its peer address "+d.address()) {
			return fmt.Errorf("%d: %s", code, out)
		}
		return nil
	})
	if level := c.Overview(0).GetClusterVersion(); level != 1 {
		t.Fatalf("the cluster is at level %d", level)
	}
	d.leadTo(strings.TrimPrefix(behind.PeerAPI(), "http://"))
	raiseLevel(t, n1)
	c.Await("every node knows of the level", func() bool {
		return !slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return c.Overview(i).GetClusterVersion() != uint32(sharding.MaxVersion) })
	})
	c.Restart(1) // the restarted node finds the other node through the door
	c.AwaitSpread()
}
