package host_test

import (
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// rotting is a disk on which a table changes after its first read.
type rotting struct {
	disk.OS
	mu   sync.Mutex
	read map[string]bool
}

type rotten struct{ disk.File }

func (f rotten) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	if at == 0 && n > 20 {
		p[20] ^= 4
	}
	return n, err
}

func (d *rotting) OpenFile(name string, access disk.Access) (disk.File, error) {
	f, err := d.OS.OpenFile(name, access)
	if err != nil || filepath.Ext(name) != ".sst" {
		return f, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.read[name] {
		d.read[name] = true
		return f, nil
	}
	return rotten{f}, nil
}

// If the scrub finds damage in a table that nobody reads, the replicas of the
// node stop. A single node rejects requests with an error that names the
// damage.
func TestScrubStopsReplicasOfDamagedStore(t *testing.T) {
	dir := t.TempDir()
	n, c := start(t, dir)
	ctx := t.Context()
	if _, err := c.Upload(ctx, guest.Module{Good: "good"}.Build(), true); err != nil {
		t.Fatal(err)
	}
	do := client.Command{EntityType: "good", EntityID: "a", Name: "do"}
	if _, err := c.Send(ctx, do); err != nil {
		t.Fatal(err)
	}
	stop(t, n)

	testkit.ShareCache(t, dir)
	cfg := config.Default()
	cfg.DataDir, cfg.Listen = dir, "127.0.0.1:0"
	n, err := host.StartIn(ctx, cfg, slog.New(slog.DiscardHandler), host.Surroundings{Network: network.TCP{}, Disk: &rotting{read: map[string]bool{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, n)
	for began := time.Now(); !strings.Contains(get(t, n, "/readyz"), "replicas have stopped"); {
		if time.Since(began) > time.Minute {
			t.Fatalf("not stopped: %s", get(t, n, "/readyz"))
		}
		time.Sleep(10 * time.Millisecond)
	}
	c, err = client.New([]string{n.Addr()}, client.Options{Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if r, err := c.Send(ctx, do); err == nil {
		t.Errorf("served: %+v", r)
	}
	if m := get(t, n, "/metrics"); !strings.Contains(m, "\nhostd_scrub_damage_total 1\n") {
		t.Error("the damage is not counted")
	}
}

func get(t *testing.T, n *host.Node, path string) string {
	t.Helper()
	res, err := http.Get("http://" + n.Addr() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
