package testkit

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/tests/support/loopback"
)

// ClusterOptions describe a cluster. The zero value is a cluster with 3 shards.
type ClusterOptions struct {
	Shards  int      // number of shards; 0 means 3
	Program string   // path of a program to run instead of this repository's
	Planted []string // faults to plant in the program, by their names under tests
	// OneListener is set for the first release, whose nodes serve each other at
	// their addresses for clients.
	OneListener bool
	Flags       []string // additional flags of serve, for every node
	Token       string   // default token of clients
	// NodeFlags are additional flags of some nodes, by the node's index.
	NodeFlags map[int][]string
	// TLS configures clients once the nodes accept only TLS.
	TLS *tls.Config
	// NodePlanted are faults to plant in the programs of some nodes, by index.
	NodePlanted map[int][]string
	// DataDirs are the data directories of some nodes, by index. The nodes create
	// them.
	DataDirs map[int]string
}

// Cluster is several nodes, each a separate process with its own address. The
// node at index 0 is n1, and so on. Only the test's goroutine may call its
// methods, except for the client that Client returns.
type Cluster struct {
	t     testing.TB
	opts  ClusterOptions
	dir   string
	addrs []string
	nodes []*Node
}

// clusterPort is the port of every node for clients, and peerPort is its
// default port for other nodes. All nodes use the same ports, on different
// hosts.
const (
	clusterPort = "7070"
	peerPort    = "7071"
)

// NewCluster returns a cluster of n nodes that are not started yet. The end of
// the test kills them and, if the test failed, prints the ends of their logs.
func NewCluster(t testing.TB, n int, opts ClusterOptions) *Cluster {
	t.Helper()
	if opts.Shards == 0 {
		opts.Shards = 3
	}
	c := &Cluster{t: t, opts: opts, dir: t.TempDir()}
	for range n {
		c.addrs = append(c.addrs, net.JoinHostPort(loopback.Host(), clusterPort))
	}
	for i := range n {
		flags := []string{"--min-members", fmt.Sprint(n)}
		if i == 0 {
			flags = append(flags, "--bootstrap")
		}
		c.add(i, flags)
	}
	return c
}

// add adds the node at an index.
func (c *Cluster) add(i int, flags []string) *Node {
	var seeds []string
	for k := range c.addrs {
		if k != i {
			seeds = append(seeds, c.Seed(k))
		}
	}
	if len(seeds) > 0 {
		flags = append(flags, "--seeds", strings.Join(seeds, ","))
	}
	id := fmt.Sprintf("n%d", i+1)
	n := NewNode(c.t, NodeOptions{
		ID: id, DataDir: cmp.Or(c.opts.DataDirs[i], filepath.Join(c.dir, id)), Listen: c.addrs[i], Shards: c.opts.Shards, Planted: slices.Concat(c.opts.Planted, c.opts.NodePlanted[i]),
		Program: c.opts.Program, TLS: c.opts.TLS, Token: c.opts.Token,
		Flags: slices.Concat(flags, c.opts.Flags, c.opts.NodeFlags[i]),
	})
	c.nodes = append(c.nodes, n)
	return n
}

// Seed returns the address at which other nodes can reach a node that has not
// served yet.
func (c *Cluster) Seed(i int) string {
	host, _, err := net.SplitHostPort(c.addrs[i])
	if err != nil || c.opts.OneListener {
		return c.addrs[i]
	}
	return net.JoinHostPort(host, peerPort)
}

// StartCluster returns a cluster of n nodes that is ready: every shard has all
// its replicas and a leader, and every node leads a shard.
func StartCluster(t testing.TB, n int, opts ClusterOptions) *Cluster {
	t.Helper()
	c := NewCluster(t, n, opts)
	c.Start()
	return c
}

// Start starts every node that is not running, all at once, and waits until the
// cluster is ready.
func (c *Cluster) Start() {
	c.t.Helper()
	for _, n := range c.nodes {
		if !n.Running() {
			if err := n.Launch(); err != nil {
				c.t.Fatalf("start %s: %v", n.ID(), err)
			}
		}
	}
	for _, n := range c.nodes {
		if err := n.AwaitReady(); err != nil {
			c.t.Fatalf("start %s: %v\n%s", n.ID(), err, n.Log())
		}
	}
	c.AwaitSpread()
}

// Add starts another node, which joins through the existing nodes, and returns
// it once it is ready.
func (c *Cluster) Add(flags ...string) *Node {
	c.t.Helper()
	c.addrs = append(c.addrs, net.JoinHostPort(loopback.Host(), clusterPort))
	n := c.add(len(c.nodes), flags)
	n.Start()
	return n
}

// Nodes returns the nodes by index.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node returns the node at an index.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Place returns the index of the node with the given ID.
func (c *Cluster) Place(id string) int {
	c.t.Helper()
	i := slices.IndexFunc(c.nodes, func(n *Node) bool { return n.ID() == id })
	if i < 0 {
		c.t.Fatalf("there is no node %q", id)
	}
	return i
}

// Kill kills a node with SIGKILL.
func (c *Cluster) Kill(i int) { c.nodes[i].Kill() }

// Stop stops a node gracefully.
func (c *Cluster) Stop(i int) { c.t.Helper(); c.nodes[i].Stop() }

// Pause stops a node's process with SIGSTOP.
func (c *Cluster) Pause(i int) { c.t.Helper(); c.nodes[i].Pause() }

// Continue undoes Pause.
func (c *Cluster) Continue(i int) { c.t.Helper(); c.nodes[i].Continue() }

// Restart kills a node and starts it again on its data.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	c.nodes[i].Kill()
	c.nodes[i].Start()
}

// StopAll stops every running node, all at once, and fails the test unless they
// stop gracefully.
func (c *Cluster) StopAll() {
	c.t.Helper()
	errs := make([]error, len(c.nodes))
	c.forRunning(func(i int, n *Node) { errs[i] = n.stop() })
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
}

// KillAll kills every node at once.
func (c *Cluster) KillAll() { c.forRunning(func(_ int, n *Node) { n.Kill() }) }

func (c *Cluster) forRunning(do func(int, *Node)) {
	var all sync.WaitGroup
	for i, n := range c.nodes {
		if n.Running() {
			all.Go(func() { do(i, n) })
		}
	}
	all.Wait()
}

// Client returns a client that knows every node, running or not. It is closed
// when the test ends.
func (c *Cluster) Client(opts client.Options) *client.Client {
	c.t.Helper()
	if opts.TLS == nil && slices.ContainsFunc(c.nodes, func(n *Node) bool { return n.scheme == "https" }) {
		opts.TLS = c.opts.TLS
	}
	opts.Token = cmp.Or(opts.Token, c.opts.Token)
	if c.opts.Program != "" && opts.HTTPClient == nil {
		opts.HTTPClient = formerClient()
		c.t.Cleanup(opts.HTTPClient.CloseIdleConnections)
	}
	out, err := client.New(c.addrs, opts)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { out.Close() })
	return out
}

// Push uploads example modules and activates them.
func (c *Cluster) Push(examples ...string) {
	c.t.Helper()
	cl := c.Client(client.Options{})
	for _, name := range examples {
		wasm := BuildExample(c.t, name)
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		_, err := cl.Upload(ctx, wasm, true)
		if cancel(); err != nil {
			c.t.Fatalf("push %s: %v", name, err)
		}
	}
}

// Await waits until a condition holds, for at most Patience.
func (c *Cluster) Await(what string, condition func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(Patience); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("never: %s", what)
		}
	}
}

// Shards asks a node for the shards. It returns nil if the node does not
// answer.
func (c *Cluster) Shards(i int) []*clusterv1.Shard {
	return ask(c.nodes[i], func(ctx context.Context, cl *client.Client) ([]*clusterv1.Shard, error) { return cl.Shards(ctx) })
}

// Overview asks a node for the members. It returns nil if the node does not
// answer.
func (c *Cluster) Overview(i int) *clusterv1.GetClusterResponse {
	return ask(c.nodes[i], func(ctx context.Context, cl *client.Client) (*clusterv1.GetClusterResponse, error) {
		return cl.Cluster(ctx)
	})
}

func ask[T any](n *Node, call func(context.Context, *client.Client) (T, error)) (out T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	opts := client.Options{Token: n.opts.Token}
	if n.scheme == "https" {
		opts.TLS = n.opts.TLS
	}
	cl, err := client.New([]string{n.API()}, opts)
	if err != nil {
		return out
	}
	defer cl.Close()
	if got, err := call(ctx, cl); err == nil {
		return got
	}
	return out
}

// Leader returns the index of the node that leads a shard according to a
// running node, or -1 if there is none.
func (c *Cluster) Leader(shard uint32) int {
	c.t.Helper()
	for i, n := range c.nodes {
		if !n.Running() {
			continue
		}
		for _, s := range c.Shards(i) {
			if s.GetShardId() == shard && s.GetLeader() != "" {
				return c.Place(s.GetLeader())
			}
		}
	}
	return -1
}

// AwaitSpread waits until every running node sees all replicas and a leader of
// every shard, and every running node leads a shard if there are enough shards.
func (c *Cluster) AwaitSpread() {
	c.t.Helper()
	what := ""
	for deadline := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		if what = c.notSpread(); what == "" {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the cluster is not complete after %s: %s", Patience, what)
		}
	}
}

func (c *Cluster) notSpread() string {
	replicas, leads := min(3, len(c.nodes)), map[string]int{}
	running := 0
	for i, n := range c.nodes {
		if !n.Running() {
			continue
		}
		running++
		shards := c.Shards(i)
		if len(shards) < c.opts.Shards {
			return fmt.Sprintf("%s knows %d of %d shards", n.ID(), len(shards), c.opts.Shards)
		}
		clear(leads)
		for _, s := range shards {
			if s.GetLeader() == "" {
				return fmt.Sprintf("%s sees no leader of shard %d", n.ID(), s.GetShardId())
			}
			if s.GetShardId() == 0 {
				continue
			}
			if have := len(s.GetVoters()) + len(s.GetLearners()); have < replicas {
				return fmt.Sprintf("%s sees %d replicas of shard %d", n.ID(), have, s.GetShardId())
			}
			leads[s.GetLeader()]++
		}
	}
	for _, n := range c.nodes {
		if n.Running() && leads[n.ID()] == 0 && c.opts.Shards >= running {
			return n.ID() + " leads nothing"
		}
	}
	return ""
}
