package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
)

func newDemo(std stdio) *cobra.Command {
	var source string
	c := leaf("demo", "Show it: entities that survive the death of their node", 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) (err error) {
		if source, err = findSource(source); err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "hostd-demo-*")
		if err != nil {
			return err
		}
		d := &demo{w: std.out, talk: std.err, dir: dir, source: source, sent: map[string]client.Reply{}}
		err = d.run(ctx)
		return errors.Join(err, d.close())
	})
	c.Long = "Builds the example modules, starts a node, uploads them, sends commands, kills the node with SIGKILL, starts it again " +
		"on the same data and shows the same state, rebuilt from the events. It works in a temporary directory and removes it."
	c.Flags().StringVar(&source, "source", "", "checkout `directory` to build the example modules from")
	return c
}

// demo is one run of the demonstration.
type demo struct {
	w, talk io.Writer
	dir     string
	source  string
	node    *nodeProcess
	client  *client.Client
	sent    map[string]client.Reply // by command id
	before  []string                // answers before the kill, by question
	timings []timing
}

type timing struct {
	what string
	took time.Duration
}

// timed runs one step and keeps how long it took.
func (d *demo) timed(what string, step func() error) error {
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
		if err := d.timed("build "+name, func() (err error) {
			guests[name], err = buildGuest(ctx, d.source, name, d.talk)
			return err
		}); err != nil {
			return err
		}
	}
	d.say("2. A node")
	if err := d.timed("start, every shard led", func() error { return d.start(ctx, "127.0.0.1:0") }); err != nil {
		return err
	}
	fmt.Fprintf(d.w, "  %s, pid %d\n", d.node.info.API, d.node.pid)
	for _, name := range demoGuests {
		if err := d.timed("upload and activate "+name, func() error {
			_, err := d.client.Upload(ctx, guests[name], true)
			return err
		}); err != nil {
			return err
		}
	}
	d.say("3. Commands: each reply below is on disk before it is printed")
	if err := d.commands(ctx); err != nil {
		return err
	}
	var err error
	if d.before, err = d.answers(ctx); err != nil {
		return err
	}
	d.say("4. kill -9 %d", d.node.pid)
	api := d.node.info.API
	d.node.kill()
	fmt.Fprintf(d.w, "  %v\n", d.node.err)
	if err := d.timed("start again on the same data, every shard led", func() error { return d.start(ctx, api[len("http://"):]) }); err != nil {
		return err
	}
	return d.prove(ctx)
}

// start starts the node and a client of it.
func (d *demo) start(ctx context.Context, listen string) error {
	if d.client != nil {
		d.client.Close()
	}
	node, err := startNode(ctx, nodeStart{nodeID: "n1", dataDir: filepath.Join(d.dir, "n1"), listen: listen, stderr: d.talk,
		flags: []string{"--admin", "full", "--log-level", "warn", "--shards", "16"}})
	if err != nil {
		return err
	}
	d.node = node
	d.client, err = node.client()
	return err
}

// prove shows that nothing was lost and nothing happens twice.
func (d *demo) prove(ctx context.Context) error {
	d.say("5. The same state, rebuilt by replaying the events")
	var after []string
	err := d.timed("ask all three entities", func() (err error) {
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
		return errors.New("the state after the restart is not the state before the kill")
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
	d.say("Done: what was acknowledged survived. Next: hostd dev")
	return nil
}

func (d *demo) close() error {
	var err error
	if d.client != nil {
		d.client.Close()
	}
	if d.node != nil {
		err = stopNode(d.node)
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
