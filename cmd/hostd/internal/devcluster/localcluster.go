package devcluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// Options describe the nodes to run on this machine.
type Options struct {
	Nodes  int
	Data   string   // directory; each node has a subdirectory n1, n2 and so on
	Listen string   // address of the first node
	Flags  []string // additional flags of serve
	Stderr io.Writer
	TLS    bool // use TLS, and create certificates if there are none
	Auth   bool // require a token, and create one if there is none
}

// Cluster is a cluster of nodes that run as children.
type Cluster struct {
	// When a node is restarted, its entry in Nodes is replaced, possibly while
	// others call Client.
	Nodes []*Node
	mu    sync.Mutex   // guards Nodes, once the cluster has started
	Files cli.TLSFiles // files that clients need; empty without TLS
	tls   *tls.Config  // configuration made from Files
	// Token is the token of clients, and TokenFile the file that holds it; both
	// are empty if the nodes do not authenticate callers.
	Token, TokenFile string
	hashes           string      // the nodes' file with the hash of the token
	starts           []nodeStart // how to start each node again
	ports            *chosen     // addresses of the nodes
}

// Start starts nodes and returns once they are one serving cluster: every shard
// has all its replicas and a leader, and the leaders are spread. Nodes that ran
// before keep their data, even if their addresses change.
func Start(ctx context.Context, s Options) (_ *Cluster, err error) {
	ports, err := choose(s.Listen, s.Nodes)
	if err != nil {
		return nil, err
	}
	c := &Cluster{ports: ports}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	founded, err := bootstrapNodes(s.Data)
	if err != nil {
		return nil, err
	}
	if founded > s.Nodes {
		return nil, cli.Hint(fmt.Errorf("%s has the data of %d nodes, but --nodes is %d", s.Data, founded, s.Nodes),
			fmt.Sprintf("Start all with --nodes %d, or remove the data with --clean.", founded))
	}
	scratch, err := os.MkdirTemp("", "hostd-start-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	if s.TLS {
		if err := c.certify(ctx, s.Data, ports.clients); err != nil {
			return nil, err
		}
	}
	if s.Auth {
		if err := c.admit(ctx, s.Data); err != nil {
			return nil, err
		}
	}
	for i, addr := range ports.clients {
		id := fmt.Sprintf("n%d", i+1)
		start := nodeStart{nodeID: id, dataDir: filepath.Join(s.Data, id), listen: addr, stderr: s.Stderr,
			flags: slices.Concat(clusterFlags(ports.peers, i, founded == 0), c.tlsFlags(id), c.authFlags(), s.Flags), tls: c.tls}
		if s.Nodes > 1 {
			start.stderr = &prefixWriter{prefix: id + " | ", w: s.Stderr}
		}
		n, err := launchNode(start, filepath.Join(scratch, id+".json"))
		if err != nil {
			return nil, err
		}
		c.Nodes, c.starts = append(c.Nodes, n), append(c.starts, start)
	}
	if err := c.await(ctx, s.Stderr); err != nil {
		return nil, err
	}
	return c, nil
}

// await waits until the nodes are a serving cluster, or one of them ends.
func (c *Cluster) await(ctx context.Context, talk io.Writer) error {
	waiting, cancel := context.WithTimeout(ctx, StartPatience)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	died := c.anyEnded(stop)
	err := func() error {
		for _, n := range c.Nodes {
			if err := n.awaitReady(waiting, died); err != nil {
				return err
			}
		}
		return c.awaitSpread(waiting, died, talk)
	}()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("start the nodes: %w", ctx.Err())
	}
	for _, n := range c.Nodes {
		if !n.running() {
			err = fmt.Errorf("%s exited during its start: %v", n.name, n.err)
		}
	}
	return cli.Hint(err, "The logs above show the reason. If a port is in use, choose a different one with --listen.")
}

// clusterFlags returns the flags with the addresses of the other
// nodes. The first node bootstraps the cluster, but only if no node has data: a
// node that lost its data must find the other nodes instead of bootstrapping
// a second cluster.
func clusterFlags(peers []string, own int, found bool) []string {
	if len(peers) < 2 {
		return nil
	}
	var others []string
	for i, a := range peers {
		if i != own {
			others = append(others, a)
		}
	}
	// A user who restarts a development node wants to see it lead again soon.
	flags := []string{"--peer-listen", peers[own], "--seeds", strings.Join(others, ","), "--min-members", fmt.Sprint(len(peers)), "--leadership-cooldown", "1s"}
	if found && own == 0 {
		flags = append(flags, "--bootstrap")
	}
	return flags
}

// bootstrapNodes counts the nodes that have data below a directory.
func bootstrapNodes(data string) (int, error) {
	marks, err := filepath.Glob(filepath.Join(data, "n[0-9]*", "node.json"))
	return len(marks), err
}

// apis returns the URLs of the running nodes.
func (c *Cluster) apis() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, n := range c.Nodes {
		if n.running() {
			out = append(out, n.Info.API)
		}
	}
	return out
}

// restart restarts an ended node with its data and address, and returns it once
// it serves.
func (c *Cluster) restart(ctx context.Context, nodeID string) (*Node, error) {
	for i, s := range c.starts {
		if s.nodeID != nodeID {
			continue
		}
		n, err := startNode(ctx, s)
		if err == nil {
			c.mu.Lock()
			c.Nodes[i] = n
			c.mu.Unlock()
		}
		return n, err
	}
	return nil, fmt.Errorf("node %s does not exist", nodeID)
}

// infos returns the addresses of the nodes.
func (c *Cluster) infos() []NodeInfo {
	out := make([]NodeInfo, len(c.Nodes))
	for i, n := range c.Nodes {
		out[i] = n.Info
	}
	return out
}

// Client returns a client of the running nodes. Its timeout is long enough to
// compile a module on a busy machine.
func (c *Cluster) Client() (*client.Client, error) {
	return client.New(c.apis(), client.Options{Timeout: StartPatience, TLS: c.tls, Token: c.Token, InsecureToken: true}) // the nodes are on this machine
}

// session connects to the running nodes.
func (c *Cluster) session(context.Context) (*cli.Session, error) {
	apis := c.apis()
	if len(apis) == 0 {
		return nil, errors.New("no node is running")
	}
	clients, err := c.Client()
	if err != nil {
		return nil, err
	}
	return cli.NewSession(clients, apis[0], cli.Stdio{}, StartPatience), nil
}

// Stop stops all nodes at the same time and waits for them, no longer than one
// of them may take.
func (c *Cluster) Stop() error {
	ended := make(chan error, len(c.Nodes))
	for _, n := range c.Nodes {
		go func() { ended <- stopNode(n) }()
	}
	var err error
	for range c.Nodes {
		err = errors.Join(err, <-ended)
	}
	return errors.Join(err, c.ports.release())
}

// progressPeriod is the interval of progress messages during a slow start.
const progressPeriod = 3 * time.Second

// awaitSpread waits until the shards are placed as wanted, and reports its
// progress if that is slow.
func (c *Cluster) awaitSpread(ctx context.Context, died <-chan struct{}, talk io.Writer) error {
	clients, err := c.Client()
	if err != nil {
		return err
	}
	defer clients.Close()
	told := time.Now()
	err = Poll(ctx, died, 20*time.Millisecond, func() error {
		shards, err := clients.Shards(ctx)
		if err != nil {
			return err
		}
		names := make([]string, len(c.Nodes))
		for i, n := range c.Nodes {
			names[i] = n.Info.NodeID
		}
		err = NotSpread(shards, names)
		if err != nil && time.Since(told) > progressPeriod {
			told = time.Now()
			fmt.Fprintf(talk, "waiting: %v\n", err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the cluster is not complete after %s: %w", StartPatience, err)
	}
	return nil
}

// awaitEven is awaitSpread for a cluster that has served before.
func (c *Cluster) awaitEven(ctx context.Context, talk io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, StartPatience)
	defer cancel()
	return c.awaitSpread(ctx, nil, talk)
}

// anyEnded returns a channel that is closed when a node ends. Its goroutines
// end when stop is closed.
func (c *Cluster) anyEnded(stop <-chan struct{}) <-chan struct{} {
	ended := make(chan struct{}, len(c.Nodes))
	out := make(chan struct{})
	for _, n := range c.Nodes {
		go func() {
			select {
			case <-n.Done:
				ended <- struct{}{}
			case <-stop:
			}
		}()
	}
	go func() {
		select {
		case <-ended:
			close(out)
		case <-stop:
		}
	}()
	return out
}

// fullReplicas is the number of replicas of a shard if there are enough nodes.
const fullReplicas = 3

// NotSpread returns what is missing until every shard has all its replicas and
// a leader, and every node leads at least half of its fair share; nil if
// nothing is missing.
func NotSpread(shards []*clusterv1.Shard, nodes []string) error {
	if len(shards) == 0 {
		return errors.New("no shard has replicas yet")
	}
	replicas := min(fullReplicas, len(nodes))
	incomplete, leaderless, data := 0, 0, 0
	leads := map[string]int{}
	for _, s := range shards {
		// An even number of voters tolerates no more failures than one voter
		// less, so one of two replicas may be a non-voter.
		votes := len(s.GetVoters()) == replicas || replicas == 2 && len(s.GetVoters()) == 1
		if s.GetShardId() != 0 && (!votes || len(s.GetVoters())+len(s.GetLearners()) < replicas) {
			incomplete++
		}
		if s.GetLeader() == "" {
			leaderless++
		}
		if s.GetShardId() != 0 {
			data++
			leads[s.GetLeader()]++
		}
	}
	switch {
	case incomplete > 0:
		return fmt.Errorf("%d of %d shards have fewer than %d replicas", incomplete, data, replicas)
	case leaderless > 0:
		return fmt.Errorf("%d of %d shards have no leader", leaderless, len(shards))
	}
	for _, n := range nodes {
		even := data / len(nodes)
		if leads[n] < (even+1)/2 {
			return fmt.Errorf("%s leads %d of %d shards", n, leads[n], data)
		}
	}
	return nil
}
