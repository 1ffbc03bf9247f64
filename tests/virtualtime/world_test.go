package virtualtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/memnet"
	"github.com/hostd/hostd/tests/support/workload"
)

// Durations of a scenario.
const (
	// hop is the latency between hosts. Because of the latency, the operations
	// of a history have different times, and time also passes for callers that
	// never pause.
	hop = 200 * time.Microsecond
	// patience bounds every wait for the cluster.
	patience = 2 * time.Minute
	// lastProbe is how long a probe of memberlist can outlive its node.
	lastProbe = 10 * time.Second
)

// options describe the cluster of a scenario.
type options struct {
	nodes  int
	shards uint32
	config func(i int, c *config.Config) // changes a node's configuration; may be nil
}

// world is a cluster in a bubble. Only the test's goroutine may call its
// methods. Nodes are numbered from 1.
type world struct {
	t       *testing.T
	opts    options
	dir     string
	net     *memnet.Network
	nodes   map[int]*node
	disks   sync.Map // disks of type *hangingDisk, by node number
	log     *tail
	stops   sync.WaitGroup // waits for nodes that died and are still shutting down
	clients []*caller
	local   map[int]*caller // client on each node's host
	ends    []func()        // cancel functions of contexts
	stopped []string        // directories of nodes that stopped gracefully
	load    *workload.Load
	history *history.History
	token   string // token of the clients
}

// node is one process of a node.
type node struct {
	*host.Node
	i    int
	dir  string
	port *port
}

// port is a process's access to the network. The host continues to exist after
// the process has ended.
type port struct {
	*memnet.Host
	dead atomic.Bool
}

var errDead = errors.New("the process is dead")

func (p *port) Listen(address string) (net.Listener, error) {
	if p.dead.Load() {
		return nil, errDead
	}
	return p.Host.Listen(address)
}

func (p *port) Dial(ctx context.Context, address string) (net.Conn, error) {
	if p.dead.Load() {
		return nil, errDead
	}
	return p.Host.Dial(ctx, address)
}

// run runs a scenario in a bubble with its own clock and network, in parallel
// with others. Nothing outside the bubble may wait for anything inside, so
// guests are built before the scenario.
func run(t *testing.T, opts options, scenario func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	buildGuests(t)
	dir := t.TempDir()
	began := time.Now()
	var told *history.History
	var stopped []string
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, opts: opts, dir: dir, net: memnet.New(), nodes: map[int]*node{}, log: &tail{had: map[string]bool{}}, local: map[int]*caller{}}
		defer func() {
			w.close()
			told, stopped = w.history, w.stopped
			if t.Failed() {
				t.Logf("the end of the log:\n%s", w.log)
			}
		}()
		scenario(t, w)
	})
	if !t.Failed() {
		check(t, told)
		verify(t, stopped)
	}
	t.Logf("real time: %v", time.Since(began).Round(time.Millisecond))
}

// close stops all nodes and clients. Time passes until the last goroutine has
// ended.
func (w *world) close() {
	if w.load != nil { // the scenario failed before it called judge
		w.load.Abandon()
	}
	for _, end := range w.ends {
		end()
	}
	w.net.HealAll()
	for i := range w.nodes {
		w.net.Host(hostOf(i)).Thaw()
	}
	for _, c := range w.clients {
		c.close()
	}
	for _, n := range w.nodes {
		w.stopped = append(w.stopped, n.dir)
	}
	w.stopAll()
	w.stops.Wait()
	time.Sleep(lastProbe)
}

// callersHost is the host of clients that do not run on a node's host.
const callersHost = "127.0.2.1"

// spare is the number of nodes that may join in addition to the initial nodes.
const spare = 2

func hostOf(i int) string         { return fmt.Sprintf("127.0.1.%d", i) }
func address(i int) string        { return hostOf(i) + ":7000" }
func id(i int) sharding.NodeID    { return sharding.NodeID(fmt.Sprintf("n%d", i)) }
func (w *world) host(i int) *port { return &port{Host: w.net.Host(hostOf(i))} }

// configure returns the configuration of a node.
func (w *world) configure(i int, dir string) config.Config {
	c := config.Default()
	c.DataDir, c.Listen, c.NodeID, c.Shards = dir, address(i), id(i), w.opts.shards
	c.Admin, c.Executors, c.WALSegmentBytes = config.AdminFull, 2, 8<<20
	c.DiskReadOnlyBytes, c.DiskReadOnlyPercent, c.DiskWarnPercent = 0, 0, 0
	c.Bootstrap, c.MinMembers = i == 1, w.opts.nodes
	for k := 1; k <= w.opts.nodes; k++ {
		if k != i {
			c.Seeds = append(c.Seeds, address(k))
		}
	}
	if w.opts.config != nil {
		w.opts.config(i, &c)
	}
	return c
}

// launch starts a node and returns at once; await waits until it is ready.
func (w *world) launch(i int) (await func()) {
	w.t.Helper()
	dir := w.dirOf(i)
	if dir == "" {
		dir = filepath.Join(w.dir, string(id(i))+".1")
		warm(w.t, dir)
	}
	on := w.host(i)
	w.link(hostOf(i))
	type result struct {
		node *host.Node
		err  error
	}
	started := make(chan result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		n, err := host.StartIn(ctx, w.configure(i, dir), w.logger(i), host.Surroundings{Network: on, Disk: w.disk(i), Exit: w.disk(i).exit, Wall: func() time.Time { return time.Now().Add(time.Duration(w.disk(i).ahead.Load())) }})
		started <- result{n, err}
	}()
	return func() {
		w.t.Helper()
		r := <-started
		if r.err != nil {
			w.t.Fatalf("start %s: %v", id(i), r.err)
		}
		w.nodes[i] = &node{Node: r.node, i: i, dir: dir, port: on}
	}
}

// dirOf returns the newest data directory of a node; "" if it has none.
func (w *world) dirOf(i int) string {
	for life := 99; life > 0; life-- {
		dir := filepath.Join(w.dir, fmt.Sprintf("%s.%d", id(i), life))
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
	}
	return ""
}

// start starts nodes at the same time and waits until each has joined the
// cluster.
func (w *world) start(nodes ...int) {
	w.t.Helper()
	var all []func()
	for _, i := range nodes {
		all = append(all, w.launch(i))
	}
	for _, await := range all {
		await()
	}
}

// found starts all nodes, and waits until the cluster serves requests and can
// survive the loss of one node.
func (w *world) found() {
	w.t.Helper()
	w.start(w.all()...)
	w.settled()
	w.until("every shard has its voters", func() bool { return w.allVoted(min(3, w.opts.nodes)) })
}

// all returns the initial nodes of the cluster.
func (w *world) all() (nodes []int) {
	for i := 1; i <= w.opts.nodes; i++ {
		nodes = append(nodes, i)
	}
	return nodes
}

// link sets the latency between a host and all other hosts.
func (w *world) link(name string) {
	w.net.Host(name)
	others := []string{callersHost}
	for k := 1; k <= w.opts.nodes+spare; k++ {
		others = append(others, hostOf(k))
	}
	for _, other := range others {
		if other != name {
			w.net.Delay(name, other, hop)
			w.net.Delay(other, name, hop)
		}
	}
}

// stop stops a node gracefully.
func (w *world) stop(i int) {
	w.t.Helper()
	n := w.nodes[i]
	delete(w.nodes, i)
	if err := n.end(); err != nil {
		w.t.Errorf("stop %s: %v", id(i), err)
	}
}

func (n *node) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return n.Stop(ctx)
}

// stopAll stops all nodes at the same time.
func (w *world) stopAll() {
	var all sync.WaitGroup
	for i, n := range w.nodes {
		delete(w.nodes, i)
		all.Go(func() {
			if err := n.end(); err != nil {
				w.t.Errorf("stop %s: %v", id(i), err)
			}
		})
	}
	all.Wait()
}

// kill ends processes like SIGKILL: their connections break, they send nothing
// more, and the next processes of the nodes find on disk everything that was
// written by then. The remains of a killed process shut down in the background.
func (w *world) kill(nodes ...int) {
	w.t.Helper()
	for _, i := range nodes {
		n := w.nodes[i]
		n.port.dead.Store(true)
		n.port.Kill()
	}
	synctest.Wait() // no goroutine is writing now
	for _, i := range nodes {
		n := w.nodes[i]
		delete(w.nodes, i)
		copyDir(w.t, n.dir, w.nextDir(i))
		w.stops.Go(func() { _ = n.end() }) // the error is ignored, because the listeners are already closed
	}
}

// forget removes the disk of a killed node, so that its next process finds no
// data.
func (w *world) forget(i int) {
	w.t.Helper()
	dir := w.dirOf(i)
	if err := os.RemoveAll(dir); err != nil {
		w.t.Fatal(err)
	}
	warm(w.t, dir)
}

// nextDir returns the directory of a node's next process.
func (w *world) nextDir(i int) string {
	var life int
	if _, err := fmt.Sscanf(filepath.Ext(w.dirOf(i)), ".%d", &life); err != nil {
		w.t.Fatal(err)
	}
	return filepath.Join(w.dir, fmt.Sprintf("%s.%d", id(i), life+1))
}

// until lets time pass until a condition holds.
func (w *world) until(what string, condition func() bool) {
	w.t.Helper()
	w.within(patience, what, condition)
}

// within is like until, with a limit on the time. It returns the elapsed time.
func (w *world) within(limit time.Duration, what string, condition func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !condition() {
		if time.Since(began) > limit {
			w.t.Fatalf("never in %v: %s", limit, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(began)
}

// settled waits until every running node is ready and sees a leader of every
// shard. Waiting for readiness is not enough, because a node stays ready while
// it serves any shard.
func (w *world) settled() {
	w.t.Helper()
	for i, n := range w.nodes {
		w.until(fmt.Sprintf("%s is ready", id(i)), n.Ready)
		w.until(fmt.Sprintf("%s sees every shard led", id(i)), func() bool { return w.led(i) })
	}
}

// logger returns a logger that writes a node's log to the world's log.
func (w *world) logger(i int) *slog.Logger {
	return slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", id(i))
}

// caller is a client on a particular host.
type caller struct {
	*client.Client
	close func()
}

// caller returns a client on a host that knows the given nodes. Unless only is
// set, it learns the addresses of other nodes.
func (w *world) caller(on string, only bool, nodes ...int) *caller {
	w.t.Helper()
	w.link(on)
	var to []string
	for _, i := range nodes {
		to = append(to, address(i))
	}
	transport := network.NewHTTPTransport(w.net.Host(on), network.HTTPOptions{})
	cl, err := client.New(to, client.Options{HTTPClient: &http.Client{Transport: transport}, GivenOnly: only, Token: w.token})
	if err != nil {
		w.t.Fatal(err)
	}
	c := &caller{Client: cl, close: func() { _ = cl.Close(); transport.CloseIdleConnections() }}
	w.clients = append(w.clients, c)
	return c
}

// client returns a client on a separate host that knows all nodes.
func (w *world) client() *caller { return w.caller(callersHost, false, w.all()...) }

// beside returns a client on a node's host that talks only to this node, so
// that partitions do not affect it.
func (w *world) beside(i int) *caller {
	if w.local[i] == nil {
		w.local[i] = w.caller(hostOf(i), true, i)
	}
	return w.local[i]
}
