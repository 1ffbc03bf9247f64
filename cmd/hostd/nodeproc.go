package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hostd/hostd/api/client"
)

// nodeProcess is a node that runs as a child.
type nodeProcess struct {
	*child
	info nodeInfo
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

// client makes a client of the node that waits for a module to be compiled,
// on a busy machine too.
func (n *nodeProcess) client() (*client.Client, error) {
	return client.New([]string{n.info.API}, client.Options{Timeout: startPatience})
}

// startNode starts a node and returns once it serves all its shards. The node
// is what `hostd serve` runs, with everything that is durable made durable.
func startNode(ctx context.Context, s nodeStart) (*nodeProcess, error) {
	dataDir, err := filepath.Abs(s.dataDir)
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "hostd-start-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	ports := filepath.Join(scratch, "ports.json")
	args := append([]string{"serve", "--node-id", s.nodeID, "--data-dir", dataDir, "--listen", s.listen, "--ports-file", ports}, s.flags...)
	c, err := startChild("node "+s.nodeID, args, s.stderr, s.stderr)
	if err != nil {
		return nil, err
	}
	n := &nodeProcess{child: c}
	waiting, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err = poll(waiting, c.done, func() error {
		p, err := readPorts(ports)
		if err != nil {
			return fmt.Errorf("it does not say that it is ready")
		}
		n.info = p.Nodes[0]
		return nil
	})
	if err == nil {
		err = poll(waiting, c.done, func() error { return askReady(waiting, n.info.API) })
	}
	if err == nil {
		return n, nil
	}
	if ctx.Err() != nil {
		return nil, errors.Join(fmt.Errorf("start node %s: %w", s.nodeID, ctx.Err()), c.stop(stopPatience))
	}
	select {
	case <-c.done:
		err = fmt.Errorf("node %s ended while starting: %v", s.nodeID, c.err)
	default:
		c.kill()
		err = fmt.Errorf("node %s is not ready after %s: %w", s.nodeID, startPatience, err)
	}
	return nil, hint(err, "Its log above says why. If its port is taken, choose another with --listen.")
}
