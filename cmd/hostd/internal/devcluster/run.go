package devcluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/devwatch"
)

// devRun is the work of dev after its nodes are ready.
type devRun struct {
	std     cli.Stdio
	options devOptions
	cluster *Cluster
	lives   []*devwatch.Live
}

// open starts to watch a project, and makes the nodes serve it if it builds.
func (d *devRun) open(ctx context.Context, dir string) error {
	l, err := devwatch.New(devwatch.Options{Dir: dir, Talk: d.std.Err, Paint: cli.NewPaint(d.std.Err), Dial: d.cluster.session})
	if err != nil {
		return err
	}
	d.lives = append(d.lives, l)
	l.Update(ctx) // it prints a failure, which the user may fix
	return ctx.Err()
}

// close stops watching all projects.
func (d *devRun) close() error {
	var faults []error
	for _, l := range d.lives {
		faults = append(faults, l.Close())
	}
	return errors.Join(faults...)
}

// run keeps the projects up to date and reports nodes that end. It returns when
// ctx ends, or when no node runs and no input is left that could restart one.
// If the user presses Enter, run restarts the ended nodes or, if there are
// none, builds all projects again.
func (d *devRun) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	for _, l := range d.lives {
		working.Go(func() { l.Run(ctx) })
	}
	typed := keys(ctx, d.std.In)
	attended := cli.OnTerminal(d.std.In)
	ended := make(chan *Node)
	look := func(n *Node) {
		working.Go(func() {
			select {
			case <-n.Done:
				select {
				case ended <- n:
				case <-ctx.Done():
				}
			case <-ctx.Done():
			}
		})
	}
	for _, n := range d.cluster.Nodes {
		look(n)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-ended:
			fmt.Fprintf(d.std.Err, "node %s (pid %d) exited: %v\n", n.Info.NodeID, n.PID, n.err)
			if attended && typed != nil {
				fmt.Fprintf(d.std.Err, "press Enter to restart it: all acknowledged writes are on disk\n")
			}
		case _, ok := <-typed:
			if !ok {
				typed = nil
				break
			}
			if gone := d.endedNodes(); len(gone) > 0 {
				d.bringBack(ctx, gone, look)
				break
			}
			for _, l := range d.lives {
				l.Again()
			}
		}
		if len(d.endedNodes()) == len(d.cluster.Nodes) && (typed == nil || !attended) {
			return cli.Hint(errors.New("all nodes have exited"), "Start again: all acknowledged writes are on disk.")
		}
	}
}

// endedNodes returns the nodes that have ended.
func (d *devRun) endedNodes() (out []*Node) {
	for _, n := range d.cluster.Nodes {
		if !n.running() {
			out = append(out, n)
		}
	}
	return out
}

// bringBack restarts ended nodes with their data and addresses.
func (d *devRun) bringBack(ctx context.Context, gone []*Node, look func(*Node)) {
	for _, n := range gone {
		id := n.Info.NodeID
		fmt.Fprintf(d.std.Err, "restarting %s\n", id)
		back, err := d.cluster.restart(ctx, id)
		if err != nil {
			if ctx.Err() == nil {
				fmt.Fprintf(d.std.Err, "cannot restart %s: %v\n", id, err)
			}
			continue
		}
		look(back)
		if err := d.printPorts(); err != nil { // first, so that the file is up to date when the message below is read
			fmt.Fprintln(d.std.Err, err)
		}
		fmt.Fprintf(d.std.Err, "node %s (pid %d) is running again at %s\n", id, back.PID, back.Info.API)
	}
	for _, l := range d.lives {
		l.Again() // to serve a module that could not be served while the nodes were down
	}
}

// printPorts writes the ports file, if there is one.
func (d *devRun) printPorts() error {
	if d.options.ports == "" {
		return nil
	}
	return WritePorts(d.options.ports, PortsFile{Nodes: d.cluster.infos(), TLS: d.cluster.TLS(), Token: d.cluster.Token})
}
