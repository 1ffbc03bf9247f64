package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/cmd/hostd/bench"
)

// activated is how many entities the workload activation asks.
const activated = 5

// benchRun is one run of bench: the node, the echo and their clients.
type benchRun struct {
	std    stdio
	o      benchOptions
	report *bench.Report
	dir    string
	node   *nodeProcess // nil when it is somebody else's
	echo   *child
	toNode *client.Client
	toEcho *client.Client
}

func (b *benchRun) open(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp(b.o.dir, "hostd-bench-*"); err != nil {
		return err
	}
	if err := b.startEcho(ctx); err != nil {
		return err
	}
	if b.o.addr != "" {
		b.toNode, err = (&remote{addr: b.o.addr, timeout: 10 * time.Second}).dial(ctx)
		return err
	}
	wasm, err := b.counter(ctx)
	if err != nil {
		return err
	}
	if err := b.startNode(ctx); err != nil {
		return err
	}
	_, err = b.toNode.Upload(ctx, wasm, true)
	return err
}

func (b *benchRun) counter(ctx context.Context) ([]byte, error) {
	if b.o.module != "" {
		return readModule(b.o.module)
	}
	source, err := findSource(b.o.source)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(b.std.err, "building the counter module")
	return buildGuest(ctx, source, "counter", b.std.err)
}

func (b *benchRun) startEcho(ctx context.Context) (err error) {
	ports := filepath.Join(b.dir, "echo.json")
	if b.echo, err = startChild("echo", []string{"bench-echo", "--ports-file", ports}, b.std.err, b.std.err); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	var p portsFile
	if err := poll(ctx, b.echo.done, pollPeriod, func() (err error) { p, err = readPorts(ports); return err }); err != nil {
		return errors.New("the echo server did not start")
	}
	b.toEcho, err = client.Dial(p.Nodes[0].API)
	return err
}

// startNode starts the run's own node, again when it was stopped.
func (b *benchRun) startNode(ctx context.Context) (err error) {
	if b.toNode != nil {
		b.toNode.Close()
	}
	fmt.Fprintln(b.std.err, "starting a node")
	if b.node, err = startNode(ctx, nodeStart{nodeID: "n1", dataDir: filepath.Join(b.dir, "n1"), listen: "127.0.0.1:0", stderr: b.std.err,
		flags: []string{"--admin", "full", "--log-level", "warn"}}); err != nil {
		return err
	}
	b.toNode, err = b.node.client()
	return err
}

// measure runs one workload.
func (b *benchRun) measure(ctx context.Context, workload string) (*bench.Result, error) {
	l := bench.Load{EntityType: "counter", Command: "add", Payload: benchPayload(b.o.payload), Keys: b.o.keys,
		KeyPrefix: fmt.Sprintf("bench-%d-%s-", os.Getpid(), workload), Concurrency: b.o.concurrency, WarmUp: b.o.warmUp, Duration: b.o.duration}
	switch workload {
	case workEcho:
		return bench.Unary(ctx, workload, b.toEcho, l)
	case workUnary:
		return bench.Unary(ctx, workload, b.toNode, l)
	case workEchoOne:
		l.Concurrency = 1
		return bench.Unary(ctx, workload, b.toEcho, l)
	case workUnaryOne:
		l.Concurrency = 1
		return bench.Unary(ctx, workload, b.toNode, l)
	case workStream:
		l.Concurrency = b.o.outstanding
		return bench.Stream(ctx, workload, b.toNode, l)
	case workHot:
		l.Concurrency, l.Keys = b.o.outstanding, 1
		return bench.Stream(ctx, workload, b.toNode, l)
	}
	return b.activate(ctx, l)
}

// activate fills entities, starts the node again and asks each once.
func (b *benchRun) activate(ctx context.Context, l bench.Load) (*bench.Result, error) {
	var keys []string
	for i := range activated {
		keys = append(keys, fmt.Sprintf("%s%d", l.KeyPrefix, i))
		if err := bench.Fill(ctx, b.toNode, l, keys[i], b.o.events); err != nil {
			return nil, err
		}
	}
	if err := b.node.stop(stopPatience); err != nil {
		return nil, err
	}
	if err := b.startNode(ctx); err != nil {
		return nil, err
	}
	// The first call of all pays for loading the module; another entity takes it.
	if _, err := b.toNode.Query(ctx, client.Query{EntityType: l.EntityType, EntityID: l.KeyPrefix + "warm", Name: "total"}); err != nil {
		return nil, err
	}
	return bench.Activate(ctx, workActivation, b.toNode, l.EntityType, "total", slices.Clone(keys), uint64(b.o.events))
}

func (b *benchRun) close() error {
	var err error
	for _, c := range []*client.Client{b.toNode, b.toEcho} {
		if c != nil {
			c.Close()
		}
	}
	if b.node != nil {
		err = stopNode(b.node)
	}
	if b.echo != nil {
		b.echo.kill()
	}
	if b.dir != "" {
		err = errors.Join(err, os.RemoveAll(b.dir))
	}
	return err
}
