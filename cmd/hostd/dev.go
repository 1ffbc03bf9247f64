package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// maxDevNodes bounds the nodes of one machine.
const maxDevNodes = 16

// devOptions are the flags of dev.
type devOptions struct {
	nodes    int
	data     string
	listen   string
	clean    bool
	modules  []string
	ports    string
	shards   uint32
	logLevel string
}

func newDev(std stdio) *cobra.Command {
	var o devOptions
	c := leaf("dev", "Run real nodes on this machine for development", 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if o.nodes < 1 {
			return usagef("--nodes is %d, must be at least 1", o.nodes)
		}
		if o.nodes > maxDevNodes {
			return usagef("--nodes is %d, at most %d run on one machine", o.nodes, maxDevNodes)
		}
		return dev(ctx, std, o)
	})
	c.Long = "Runs real nodes, each a process of this program with everything made durable, until interrupted. " +
		"What they stored is there again at the next start, unless --clean is given."
	f := c.Flags()
	f.IntVar(&o.nodes, "nodes", 1, "`number` of nodes")
	f.StringVar(&o.data, "data", "hostd-data", "`directory` of the nodes' data, one below it for each node")
	f.StringVar(&o.listen, "listen", "127.0.0.1:7070", "`address` of the first node, the others take the next free ports")
	f.BoolVar(&o.clean, "clean", false, "remove what earlier runs stored")
	f.StringArrayVar(&o.modules, "module", nil, "`file` of a module to upload and activate; may be given again")
	f.StringVar(&o.ports, "ports-file", "", "`file` that is written when all nodes are ready: JSON of their addresses and processes")
	f.Uint32Var(&o.shards, "shards", 0, "data `shards` of a new cluster; 0 is the default of serve")
	f.StringVar(&o.logLevel, "log-level", "warn", "least `level` of what the nodes log to the standard error")
	return c
}

func dev(ctx context.Context, std stdio, o devOptions) error {
	if o.clean {
		if err := cleanData(o.data); err != nil {
			return err
		}
	}
	if o.ports != "" {
		if err := os.Remove(o.ports); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("ports file: %w", err)
		}
	}
	began := time.Now()
	flags := []string{"--admin", "full", "--log-level", o.logLevel}
	if o.shards > 0 {
		flags = append(flags, "--shards", fmt.Sprint(o.shards))
	}
	fmt.Fprintf(std.err, "starting %s\n", nodeNamesUpTo(o.nodes))
	c, err := startCluster(ctx, localStart{nodes: o.nodes, data: o.data, listen: o.listen, flags: flags, stderr: std.err})
	if err != nil {
		return duringStart(ctx, err)
	}
	if err = devReady(ctx, std, o, c, began); err != nil {
		err = duringStart(ctx, err)
	} else {
		err = watch(ctx, std, c.nodes)
	}
	return errors.Join(err, c.stop())
}

// duringStart is why the nodes did not become ready: what ended by a signal
// failed for no other reason.
func duringStart(ctx context.Context, err error) error {
	if ctx.Err() == nil || !canceled(err) {
		return err
	}
	return hint(errors.New("interrupted before the nodes were ready"), "What they stored is kept: start again, or begin anew with --clean.")
}

// nodeNamesUpTo names n nodes for people.
func nodeNamesUpTo(n int) string {
	if n == 1 {
		return "n1"
	}
	return fmt.Sprintf("n1 to n%d", n)
}

// stopNode stops a node that has not ended by itself.
func stopNode(n *nodeProcess) error {
	select {
	case <-n.done:
		return nil
	default:
		return n.stop(stopPatience)
	}
}

// devReady uploads the modules and tells where the nodes are.
func devReady(ctx context.Context, std stdio, o devOptions, cluster *localCluster, began time.Time) error {
	infos := cluster.infos()
	for _, file := range o.modules {
		if err := pushFile(ctx, std, cluster, file); err != nil {
			return err
		}
	}
	if o.ports != "" {
		if err := writePorts(o.ports, infos); err != nil {
			return err
		}
	}
	table(std.out, "NODE\tAPI\tPID\tDATA", func(row func(...any)) {
		for _, i := range infos {
			row(i.NodeID, i.API, i.PID, i.DataDir)
		}
	})
	fmt.Fprintf(std.err, "ready after %s; Ctrl-C stops\n", time.Since(began).Round(time.Millisecond))
	return nil
}

func pushFile(ctx context.Context, std stdio, cluster *localCluster, file string) error {
	wasm, err := readModule(file)
	if err != nil {
		return err
	}
	c, err := cluster.client()
	if err != nil {
		return err
	}
	defer c.Close()
	up, err := c.Upload(ctx, wasm, true)
	if err != nil {
		return fmt.Errorf("push %s: %w", file, err)
	}
	fmt.Fprintf(std.err, "%s serves %s\n", filepath.Base(file), strings.Join(up.EntityTypes, ", "))
	return nil
}

// watch tells of nodes that die, until ctx ends or none is left.
func watch(ctx context.Context, std stdio, nodes []*nodeProcess) error {
	died := make(chan *nodeProcess, len(nodes))
	for _, n := range nodes {
		go func() {
			<-n.done
			died <- n
		}()
	}
	for left := len(nodes); left > 0; left-- {
		select {
		case <-ctx.Done():
			return nil
		case n := <-died:
			fmt.Fprintf(std.err, "node %s (pid %d) ended: %v\n", n.info.NodeID, n.pid, n.err)
		}
	}
	return hint(errors.New("no node is left"), "Start again: what was acknowledged is on disk.")
}

// cleanData removes the nodes' directories that dev made, and nothing else.
func cleanData(data string) error {
	dirs, err := filepath.Glob(filepath.Join(data, "n[0-9]*", "node.json"))
	if err != nil {
		return err
	}
	for _, marker := range dirs {
		if err := os.RemoveAll(filepath.Dir(marker)); err != nil {
			return fmt.Errorf("clean: %w", err)
		}
	}
	return nil
}
