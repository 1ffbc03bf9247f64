package devcluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/devwatch"
)

// devRun is what dev does once its nodes are ready.
type devRun struct {
	std     cli.Stdio
	options devOptions
	cluster *Cluster
	lives   []*devwatch.Live
}

// open begins to watch a project, and has the nodes serve it as far as it
// builds.
func (d *devRun) open(ctx context.Context, dir string) error {
	l, err := devwatch.New(devwatch.Options{Dir: dir, Talk: d.std.Err, Paint: cli.NewPaint(d.std.Err), Dial: d.cluster.session})
	if err != nil {
		return err
	}
	d.lives = append(d.lives, l)
	l.Update(ctx) // it says what is wrong, and what is wrong may be mended
	return ctx.Err()
}

// close ends the watching of all projects.
func (d *devRun) close() error {
	var faults []error
	for _, l := range d.lives {
		faults = append(faults, l.Close())
	}
	return errors.Join(faults...)
}

// run keeps the projects in service and tells of nodes that end, until ctx
// ends, or no node is left and nobody is there who could bring one back. Who
// presses Enter brings back all that have ended, or builds all projects again
// where none has.
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
			fmt.Fprintf(d.std.Err, "node %s (pid %d) ended: %v\n", n.Info.NodeID, n.PID, n.err)
			if attended && typed != nil {
				fmt.Fprintf(d.std.Err, "Enter brings it back: what was acknowledged is on disk\n")
			}
		case _, ok := <-typed:
			if !ok {
				typed = nil
				break
			}
			if gone := d.gone(); len(gone) > 0 {
				d.bringBack(ctx, gone, look)
				break
			}
			for _, l := range d.lives {
				l.Again()
			}
		}
		if len(d.gone()) == len(d.cluster.Nodes) && (typed == nil || !attended) {
			return cli.Hint(errors.New("no node is left"), "Start again: what was acknowledged is on disk.")
		}
	}
}

// gone are the nodes that have ended.
func (d *devRun) gone() (out []*Node) {
	for _, n := range d.cluster.Nodes {
		if !n.running() {
			out = append(out, n)
		}
	}
	return out
}

// bringBack starts nodes that have ended again, on their data and addresses.
func (d *devRun) bringBack(ctx context.Context, gone []*Node, look func(*Node)) {
	for _, n := range gone {
		id := n.Info.NodeID
		fmt.Fprintf(d.std.Err, "starting %s again\n", id)
		back, err := d.cluster.restart(ctx, id)
		if err != nil {
			if ctx.Err() == nil {
				fmt.Fprintf(d.std.Err, "%s does not come back: %v\n", id, err)
			}
			continue
		}
		look(back)
		if err := d.tellPorts(); err != nil { // who reads that it is back finds it there
			fmt.Fprintln(d.std.Err, err)
		}
		fmt.Fprintf(d.std.Err, "node %s (pid %d) is back at %s\n", id, back.PID, back.Info.API)
	}
	for _, l := range d.lives {
		l.Again() // what could not be served meanwhile
	}
}

// tellPorts writes the ports file, where there is one.
func (d *devRun) tellPorts() error {
	if d.options.ports == "" {
		return nil
	}
	return WritePorts(d.options.ports, PortsFile{Nodes: d.cluster.infos(), TLS: d.cluster.TLS(), Token: d.cluster.Token})
}
