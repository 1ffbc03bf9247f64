package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hostd/hostd/api/client"
)

// localStart says which nodes to run on this machine.
type localStart struct {
	nodes  int
	data   string   // directory; a node's data lies in n1, n2 and so on below it
	listen string   // address of the first node
	flags  []string // more flags of serve
	stderr io.Writer
}

// localCluster is a cluster of nodes that run as children.
type localCluster struct {
	nodes  []*nodeProcess
	starts []nodeStart // how each was started
}

// startCluster starts nodes and returns once they are one cluster that serves:
// every shard has all its replicas and a leader, and the leaders are spread.
// Nodes that were there before come back with their data, wherever they listen.
func startCluster(ctx context.Context, s localStart) (_ *localCluster, err error) {
	addrs, err := chooseAddrs(s.listen, s.nodes)
	if err != nil {
		return nil, err
	}
	founded, err := foundedNodes(s.data)
	if err != nil {
		return nil, err
	}
	if founded > s.nodes {
		return nil, hint(fmt.Errorf("%s holds the data of %d nodes, and %d were asked for", s.data, founded, s.nodes),
			fmt.Sprintf("Start all with --nodes %d, or begin anew with --clean.", founded))
	}
	scratch, err := os.MkdirTemp("", "hostd-start-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	c := &localCluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	for i, addr := range addrs {
		id := fmt.Sprintf("n%d", i+1)
		start := nodeStart{nodeID: id, dataDir: filepath.Join(s.data, id), listen: addr, stderr: s.stderr,
			flags: append(clusterFlags(addrs, i, founded == 0), s.flags...)}
		if s.nodes > 1 {
			start.stderr = &prefixWriter{prefix: id + " | ", w: s.stderr}
		}
		n, err := launchNode(start, filepath.Join(scratch, id+".json"))
		if err != nil {
			return nil, err
		}
		c.nodes, c.starts = append(c.nodes, n), append(c.starts, start)
	}
	if err := c.await(ctx, s.stderr); err != nil {
		return nil, err
	}
	return c, nil
}

// await waits until the nodes are a cluster that serves, or one of them ends.
func (c *localCluster) await(ctx context.Context, talk io.Writer) error {
	waiting, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	died := c.anyEnded(stop)
	err := func() error {
		for _, n := range c.nodes {
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
	for _, n := range c.nodes {
		if !n.running() {
			err = fmt.Errorf("%s ended while starting: %v", n.name, n.err)
		}
	}
	return hint(err, "The logs above say why. If a port is taken, choose another with --listen.")
}

// clusterFlags are what a node of several is told of the others. One of them
// founds the cluster, and only where none of them has data: a node that lost
// its data must find the others, not found another cluster beside theirs.
func clusterFlags(addrs []string, own int, found bool) []string {
	if len(addrs) == 1 {
		return nil
	}
	var others []string
	for i, a := range addrs {
		if i != own {
			others = append(others, a)
		}
	}
	flags := []string{"--seeds", strings.Join(others, ","), "--min-members", fmt.Sprint(len(addrs))}
	if found && own == 0 {
		flags = append(flags, "--bootstrap")
	}
	return flags
}

// foundedNodes counts the nodes that have data under a directory.
func foundedNodes(data string) (int, error) {
	marks, err := filepath.Glob(filepath.Join(data, "n[0-9]*", "node.json"))
	return len(marks), err
}

// apis returns the URLs of the nodes that run.
func (c *localCluster) apis() []string {
	var out []string
	for _, n := range c.nodes {
		if n.running() {
			out = append(out, n.info.API)
		}
	}
	return out
}

// restart starts a node that has ended on its data and address and returns
// once it serves.
func (c *localCluster) restart(ctx context.Context, nodeID string) error {
	for i, s := range c.starts {
		if s.nodeID != nodeID {
			continue
		}
		n, err := startNode(ctx, s)
		if err == nil {
			c.nodes[i] = n
		}
		return err
	}
	return fmt.Errorf("there is no node %s", nodeID)
}

// infos say how to reach the nodes.
func (c *localCluster) infos() []nodeInfo {
	out := make([]nodeInfo, len(c.nodes))
	for i, n := range c.nodes {
		out[i] = n.info
	}
	return out
}

// client makes a client of the nodes that run. It waits for a module to be
// compiled, on a busy machine too.
func (c *localCluster) client() (*client.Client, error) {
	return client.New(c.apis(), client.Options{Timeout: startPatience})
}

// stop stops all nodes at once and waits for them, no longer than one may take.
func (c *localCluster) stop() error {
	ended := make(chan error, len(c.nodes))
	for _, n := range c.nodes {
		go func() { ended <- stopNode(n) }()
	}
	var err error
	for range c.nodes {
		err = errors.Join(err, <-ended)
	}
	return err
}

// progressPeriod is how often a start that takes long tells how far it is.
const progressPeriod = 3 * time.Second

// awaitSpread waits until the shards are where they shall be, and tells of it
// when that takes long.
func (c *localCluster) awaitSpread(ctx context.Context, died <-chan struct{}, talk io.Writer) error {
	clients, err := c.client()
	if err != nil {
		return err
	}
	defer clients.Close()
	told := time.Now()
	err = poll(ctx, died, 20*time.Millisecond, func() error {
		shards, err := clients.Shards(ctx)
		if err != nil {
			return err
		}
		names := make([]string, len(c.nodes))
		for i, n := range c.nodes {
			names[i] = n.info.NodeID
		}
		err = notSpread(viewShards(shards), names)
		if err != nil && time.Since(told) > progressPeriod {
			told = time.Now()
			fmt.Fprintf(talk, "waiting: %v\n", err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the cluster is not complete after %s: %w", startPatience, err)
	}
	return nil
}

// awaitEven is awaitSpread for a cluster that has served before.
func (c *localCluster) awaitEven(ctx context.Context, talk io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	return c.awaitSpread(ctx, nil, talk)
}

// anyEnded returns a channel that is closed when a node ends. The goroutines
// behind it end with stop.
func (c *localCluster) anyEnded(stop <-chan struct{}) <-chan struct{} {
	ended := make(chan struct{}, len(c.nodes))
	out := make(chan struct{})
	for _, n := range c.nodes {
		go func() {
			select {
			case <-n.done:
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

// fullReplicas is how many replicas a shard has when there are enough nodes.
const fullReplicas = 3

// notSpread says what is missing until every shard has all its replicas and a
// leader and every node leads at least half of its even part; nil when nothing
// is.
func notSpread(shards []shardView, nodes []string) error {
	if len(shards) == 0 {
		return errors.New("no shard is placed")
	}
	replicas := min(fullReplicas, len(nodes))
	incomplete, leaderless, data := 0, 0, 0
	leads := map[string]int{}
	for _, s := range shards {
		// An even number of voters survives no more than the odd one below it:
		// of two replicas one may only follow.
		votes := len(s.Voters) == replicas || replicas == 2 && len(s.Voters) == 1
		if s.ShardID != 0 && (!votes || len(s.Voters)+len(s.Learners) < replicas) {
			incomplete++
		}
		if s.Leader == "" {
			leaderless++
		}
		if s.ShardID != 0 {
			data++
			leads[s.Leader]++
		}
	}
	switch {
	case incomplete > 0:
		return fmt.Errorf("%d of %d shards have less than %d replicas", incomplete, data, replicas)
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
