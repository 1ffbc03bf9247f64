package devcluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// Node is a node that runs as a child process.
type Node struct {
	*Child
	ports string // file that it writes when ready
	tls   *tls.Config
	Info  NodeInfo // valid once the node is ready
}

// nodeStart describes a node to start.
type nodeStart struct {
	nodeID  string
	dataDir string
	listen  string
	flags   []string // additional flags of serve
	tls     *tls.Config
	stderr  io.Writer
}

// Limits of the time that a node needs to start and to stop.
const (
	StartPatience = 60 * time.Second
	stopPatience  = 15 * time.Second
)

// running reports whether the process is running.
func (n *Node) running() bool {
	select {
	case <-n.Done:
		return false
	default:
		return true
	}
}

// startNode starts a node and returns once it serves all its shards. The node
// runs `hostd serve` with full durability.
func startNode(ctx context.Context, s nodeStart) (*Node, error) {
	scratch, err := os.MkdirTemp("", "hostd-start-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	n, err := launchNode(s, filepath.Join(scratch, "ports.json"))
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, StartPatience)
	defer cancel()
	err = n.awaitReady(waiting, n.Done)
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		err = fmt.Errorf("start %s: %w", n.name, ctx.Err())
	case !n.running():
		err = fmt.Errorf("%s exited during its start: %v", n.name, n.err)
	}
	return nil, errors.Join(cli.Hint(err, "Its log above shows the reason. If its port is in use, choose a different one with --listen."), stopNode(n))
}

// launchNode starts the process, which writes the ports file when it is ready.
func launchNode(s nodeStart, ports string) (*Node, error) {
	dataDir, err := filepath.Abs(s.dataDir)
	if err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--node-id", s.nodeID, "--data-dir", dataDir, "--listen", s.listen, "--ports-file", ports}, s.flags...)
	c, err := StartChild("node "+s.nodeID, args, s.stderr, s.stderr)
	if err != nil {
		return nil, err
	}
	return &Node{Child: c, ports: ports, tls: s.tls}, nil
}

// awaitReady waits until the node serves, ctx ends or stop is closed. In any
// case the process keeps running.
func (n *Node) awaitReady(ctx context.Context, stop <-chan struct{}) error {
	asker := cli.HTTPClient(n.tls)
	defer asker.CloseIdleConnections()
	err := Poll(ctx, stop, PollPeriod, func() error {
		p, err := ReadPorts(n.ports)
		if err != nil {
			return fmt.Errorf("it does not report that it is ready")
		}
		n.Info = p.Nodes[0]
		return nil
	})
	if err == nil {
		err = Poll(ctx, stop, PollPeriod, func() error { return askReady(ctx, asker, n.Info.API) })
	}
	if err != nil {
		return fmt.Errorf("%s is not ready after %s: %w", n.name, StartPatience, err)
	}
	return nil
}
