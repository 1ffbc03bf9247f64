package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// NewDemo returns the command that demonstrates the fail-over of a killed node.
func NewDemo(std cli.Stdio) *cobra.Command {
	var source string
	c := cli.Leaf("demo", "Demonstrate how entities survive the failure of a node", 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) (err error) {
		if source, err = FindSource(source); err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "hostd-demo-*")
		if err != nil {
			return err
		}
		d := &demo{w: std.Out, talk: std.Err, dir: dir, source: source, sent: map[string]client.Reply{}}
		err = d.run(ctx)
		return errors.Join(err, d.close())
	})
	c.Long = "Builds the example modules, starts three nodes, uploads the modules, sends commands, kills the node that leads an entity's shard with SIGKILL " +
		"and shows that a different node has the same state. Then it starts the killed node again. It works in a temporary directory, which it removes."
	c.Flags().StringVar(&source, "source", "", "`directory` of the hostd checkout to build the example modules from")
	return c
}

// demo is one run of the demonstration.
type demo struct {
	w, talk io.Writer
	dir     string
	source  string
	cluster *Cluster
	client  *client.Client          // client of the running nodes
	sent    map[string]client.Reply // by command id
	before  []string                // answers before the kill, by query
	timings []timing
}

type timing struct {
	what string
	took time.Duration
}

// timeStep runs one step and records how long it took.
func (d *demo) timeStep(what string, step func() error) error {
	began := time.Now()
	err := step()
	took := time.Since(began)
	d.timings = append(d.timings, timing{what, took})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	fmt.Fprintf(d.w, "  %-44s %s\n", what, took.Round(10*time.Microsecond))
	return nil
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.w, "\n"+format+"\n", args...) }

func (d *demo) run(ctx context.Context) error {
	guests := map[string][]byte{}
	d.say("1. Three modules, built with the stock Go toolchain")
	for _, name := range demoGuests {
		if err := d.timeStep("build "+name, func() (err error) {
			guests[name], err = BuildGuest(ctx, d.source, name, d.talk)
			return err
		}); err != nil {
			return err
		}
	}
	d.say("2. Three nodes")
	if err := d.timeStep("start, every shard on all three and led", func() error { return d.start(ctx) }); err != nil {
		return err
	}
	for _, n := range d.cluster.Nodes {
		fmt.Fprintf(d.w, "  %s  %s  pid %d\n", n.Info.NodeID, n.Info.API, n.PID)
	}
	for _, name := range demoGuests {
		if err := d.timeStep("upload and activate "+name, func() error {
			_, err := d.client.Upload(ctx, guests[name], true)
			return err
		}); err != nil {
			return err
		}
	}
	d.say("3. Commands: each reply below is on the disks of two nodes at least before it is printed")
	if err := d.commands(ctx); err != nil {
		return err
	}
	var err error
	if d.before, err = d.answers(ctx); err != nil {
		return err
	}
	killed, err := d.killLeader(ctx)
	if err != nil {
		return err
	}
	if err := d.prove(ctx); err != nil {
		return err
	}
	return d.restart(ctx, killed)
}

// demoShards is small, so that the demonstration is quick on a small machine.
const demoShards = "16"

// start starts the nodes and connects a client.
func (d *demo) start(ctx context.Context) error {
	var err error
	d.cluster, err = Start(ctx, Options{Nodes: 3, Data: d.dir, Listen: "127.0.0.1:0", Stderr: d.talk,
		Flags: []string{"--admin", "full", "--log-level", "error", "--shards", demoShards}})
	if err != nil {
		return err
	}
	return d.dial()
}

// dial connects a client to the running nodes.
func (d *demo) dial() error {
	if d.client != nil {
		d.client.Close()
	}
	var err error
	d.client, err = d.cluster.Client()
	return err
}

// killLeader kills the node that runs the account, and measures how long its
// callers wait for the next answer.
func (d *demo) killLeader(ctx context.Context) (*Node, error) {
	e, err := d.client.Entity(ctx, demoAgain.EntityType, demoAgain.EntityID)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(d.cluster.Nodes, func(n *Node) bool { return n.Info.NodeID == e.GetNodeId() })
	if at < 0 {
		return nil, fmt.Errorf("%s, which is not one of the nodes, leads shard %d", e.GetNodeId(), e.GetShardId())
	}
	leader := d.cluster.Nodes[at]
	d.say("4. kill -9 %d: %s leads shard %d, where account alice lives", leader.PID, leader.Info.NodeID, e.GetShardId())
	leader.Kill()
	fmt.Fprintf(d.w, "  %v\n", leader.err)
	if err := d.dial(); err != nil {
		return nil, err
	}
	var reply client.Reply
	if err := d.timeStep("the next command, from the kill to its reply", func() error {
		var err error
		reply, err = d.client.Send(ctx, demoAgain)
		return err
	}); err != nil {
		return nil, err
	}
	fmt.Fprintf(d.w, "  account alice open -> %s, from %s\n", reply.Data, reply.NodeID)
	if reply.NodeID == leader.Info.NodeID {
		return nil, errors.New("the response came from the killed node")
	}
	return leader, nil
}

// restart restarts the killed node and waits until the cluster has three nodes
// again.
func (d *demo) restart(ctx context.Context, killed *Node) error {
	d.say("7. %s starts again on its data and catches up", killed.Info.NodeID)
	if err := d.timeStep("start, caught up", func() error {
		_, err := d.cluster.restart(ctx, killed.Info.NodeID)
		return err
	}); err != nil {
		return err
	}
	if err := d.timeStep("leaders rebalanced over all three", func() error { return d.cluster.awaitEven(ctx, d.talk) }); err != nil {
		return err
	}
	d.say("Done: everything acknowledged survived. Next: hostd dev --nodes 3")
	return nil
}

// prove shows that nothing was lost and that no command ran twice.
func (d *demo) prove(ctx context.Context) error {
	d.say("5. The same state, from the remaining nodes: rebuilt by replaying the events")
	var after []string
	err := d.timeStep("query all three entities", func() (err error) {
		after, err = d.answers(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for i, answer := range after {
		fmt.Fprintf(d.w, "  %s\n", answer)
		if answer != d.before[i] {
			fmt.Fprintf(d.w, "  was: %s\n", d.before[i])
		}
	}
	if !slices.Equal(d.before, after) {
		return errors.New("the state after the kill differs from the state before it")
	}
	d.say("6. A command sent again with its id: the stored reply, and no second effect")
	again := demoCommands[0]
	again.ID = demoID(0)
	reply, err := d.client.Send(ctx, again)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.w, "  %s %s %s %s -> %s (duplicate: %v)\n", again.EntityType, again.EntityID, again.Name, again.Data, reply.Data, reply.Duplicate)
	if first := d.sent[again.ID]; !reply.Duplicate || string(reply.Data) != string(first.Data) || reply.Sequence != first.Sequence {
		return errors.New("the command took effect again")
	}
	return nil
}

func (d *demo) close() error {
	var err error
	if d.client != nil {
		d.client.Close()
	}
	if d.cluster != nil {
		err = d.cluster.Stop()
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
