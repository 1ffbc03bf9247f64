package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// nodeProcess is a node that runs as a child.
type nodeProcess struct {
	*child
	ports string   // file that it writes when it is ready
	info  nodeInfo // valid once it is
}

// nodeStart says which node to start.
type nodeStart struct {
	nodeID  string
	dataDir string
	listen  string
	flags   []string // more flags of serve
	stderr  io.Writer
}

// How long a node may take to serve, and to stop.
const (
	startPatience = 60 * time.Second
	stopPatience  = 15 * time.Second
)

// running reports whether the process lives.
func (n *nodeProcess) running() bool {
	select {
	case <-n.done:
		return false
	default:
		return true
	}
}

// startNode starts a node and returns once it serves all its shards. The node
// is what `hostd serve` runs, with everything that is durable made durable.
func startNode(ctx context.Context, s nodeStart) (*nodeProcess, error) {
	scratch, err := os.MkdirTemp("", "hostd-start-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	n, err := launchNode(s, filepath.Join(scratch, "ports.json"))
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err = n.awaitReady(waiting, n.done)
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		err = fmt.Errorf("start %s: %w", n.name, ctx.Err())
	case !n.running():
		err = fmt.Errorf("%s ended while starting: %v", n.name, n.err)
	}
	return nil, errors.Join(hint(err, "Its log above says why. If its port is taken, choose another with --listen."), stopNode(n))
}

// launchNode starts the process, which writes the ports file when it is ready.
func launchNode(s nodeStart, ports string) (*nodeProcess, error) {
	dataDir, err := filepath.Abs(s.dataDir)
	if err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--node-id", s.nodeID, "--data-dir", dataDir, "--listen", s.listen, "--ports-file", ports}, s.flags...)
	c, err := startChild("node "+s.nodeID, args, s.stderr, s.stderr)
	if err != nil {
		return nil, err
	}
	return &nodeProcess{child: c, ports: ports}, nil
}

// awaitReady waits until the node serves, ctx ends or stop is closed. The
// process goes on whatever it returns.
func (n *nodeProcess) awaitReady(ctx context.Context, stop <-chan struct{}) error {
	err := poll(ctx, stop, pollPeriod, func() error {
		p, err := readPorts(n.ports)
		if err != nil {
			return fmt.Errorf("it does not say that it is ready")
		}
		n.info = p.Nodes[0]
		return nil
	})
	if err == nil {
		err = poll(ctx, stop, pollPeriod, func() error { return askReady(ctx, n.info.API) })
	}
	if err != nil {
		return fmt.Errorf("%s is not ready after %s: %w", n.name, startPatience, err)
	}
	return nil
}
