package host_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/tests/support/testkit"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A node whose seed belongs to another cluster is not ready, and names both
// clusters. An unreachable seed does not matter.
func TestSeedOfAnotherClusterIsNamed(t *testing.T) {
	other, c := start(t, t.TempDir())
	dir := t.TempDir()
	testkit.ShareCache(t, dir)
	run := func(seeds ...string) (*host.Node, *lines, string) {
		t.Helper()
		cfg, log := config.Default(), &lines{}
		cfg.NodeID, cfg.DataDir, cfg.Listen, cfg.Shards, cfg.Seeds = "astray", dir, "127.0.0.1:0", 8, seeds
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n, err := host.Start(ctx, cfg, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		own, err := client.New([]string{n.Addr()}, client.Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		o, err := own.Cluster(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return n, log, o.GetClusterId()
	}
	n, _, id := run()
	stop(t, n)
	theirs, err := c.Cluster(t.Context())
	if err != nil || id == "" || theirs.GetClusterId() == id {
		t.Fatalf("clusters %q and %q, %v", id, theirs.GetClusterId(), err)
	}

	n, log, again := run(other.Addr())
	names := func(s string) bool {
		return strings.Contains(s, id) && strings.Contains(s, theirs.GetClusterId()) && strings.Contains(s, other.Addr())
	}
	for began := time.Now(); !names(get(t, n, "/readyz")); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("/readyz: %s", get(t, n, "/readyz"))
		}
	}
	if n.Ready() || again != id || !names(log.String()) {
		t.Errorf("ready %v in cluster %s; the log:\n%s", n.Ready(), again, log)
	}
	stop(t, other)
	stop(t, n)

	n, _, _ = run(other.Addr()) // which has stopped
	for began := time.Now(); !n.Ready(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("beside a seed that is away: %s", get(t, n, "/readyz"))
		}
	}
	stop(t, n)
}
