package host

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/hostd/hostd/host/config"
)

// When a node stops, requests in flight on it are forwarded to the new leaders.
// So the node must learn about new leaders until those requests are answered.
func TestStoppingNodeFollowsLeaders(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg := config.Default()
	cfg.DataDir, cfg.Listen, cfg.Shards = t.TempDir(), "127.0.0.1:0", 1
	n, err := Start(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(context.Background())
	for !n.Ready() {
		if ctx.Err() != nil {
			t.Fatal("the node never became ready")
		}
		time.Sleep(time.Millisecond)
	}
	last := len(n.lifecycle.closers) - 1
	for ; n.lifecycle.closers[last].name != "server"; last-- {
		if err := n.lifecycle.closers[last].close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	n.lifecycle.closers = n.lifecycle.closers[:last+1]

	changed := n.routing.leaders.Changed()
	n.shardRouter.QuorumChanged(1, false)
	select {
	case <-changed:
	case <-ctx.Done():
		t.Error("the router is not told of a change that came after the node began to stop")
	}
}
