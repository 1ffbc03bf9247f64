package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/tests/support/testkit"
)

// start runs a node on dir and returns a client for it.
func start(t *testing.T, dir string) (*host.Node, *client.Client) {
	t.Helper()
	return startWith(t, dir, func(*config.Config) {})
}

// startWith is start with a changed configuration.
func startWith(t *testing.T, dir string, change func(*config.Config)) (*host.Node, *client.Client) {
	t.Helper()
	testkit.ShareCache(t, dir)
	cfg := config.Default()
	cfg.DataDir, cfg.Listen, cfg.Shards, cfg.Admin = dir, "127.0.0.1:0", 8, config.AdminFull
	change(&cfg)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, err := host.Start(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for !n.Ready() {
		if ctx.Err() != nil {
			t.Fatal("the node never became ready")
		}
		time.Sleep(time.Millisecond)
	}
	c, err := client.New([]string{n.Addr()}, client.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return n, c
}

func stop(t *testing.T, n *host.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func TestStateSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	n, c := start(t, dir)
	wasm := testkit.BuildExample(t, "counter")
	ctx := t.Context()
	m, err := c.Upload(ctx, wasm, true)
	if err != nil {
		t.Fatal(err)
	}
	_ = m
	for i := range 20 {
		r, err := c.Send(ctx, client.Command{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte(fmt.Sprintf(`{"amount":%d}`, i))})
		if err != nil {
			t.Fatal(err)
		}
		if int(r.Sequence) != i+1 {
			t.Fatalf("command %d got sequence %d", i, r.Sequence)
		}
	}
	stop(t, n)
	n, c = start(t, dir)
	defer stop(t, n)
	r, err := c.Query(ctx, client.Query{EntityType: "counter", EntityID: "a", Name: "total"})
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Data) != `{"total":190}` {
		t.Fatalf("after a restart the total is %s", r.Data)
	}
}
