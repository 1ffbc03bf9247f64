package host_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/offline"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestSingleNodeWithDamagedLogIsRecovered flips a bit in the middle of the
// acknowledged data. The node refuses to start and names the recovery command,
// and after recovery it serves a prefix of the history.
func TestSingleNodeWithDamagedLogIsRecovered(t *testing.T) {
	dir := t.TempDir()
	n, c := start(t, dir)
	if _, err := c.Upload(t.Context(), testkit.BuildExample(t, "counter"), true); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		_, err := c.Send(t.Context(), client.Command{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte(`{"amount":1}`), ID: fmt.Sprintf("cmd-%03d", i)})
		if err != nil {
			t.Fatal(err)
		}
	}
	stop(t, n)
	segments, err := filepath.Glob(filepath.Join(dir, "wal", "*"))
	if err != nil {
		t.Fatal(err)
	}
	damaged := false
	for _, name := range segments {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(data, []byte("cmd-025")); at >= 0 {
			data[at] ^= 0x20
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
			damaged = true
		}
	}
	if !damaged {
		t.Fatal("no segment holds the command to damage")
	}
	cfg := config.Default()
	cfg.DataDir, cfg.Listen = dir, "127.0.0.1:0"
	_, err = host.Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if !errors.Is(err, journal.ErrDamaged) && (err == nil || !strings.Contains(err.Error(), "accept-loss")) {
		t.Fatalf("a node with a damaged log: %v", err)
	}
	var out strings.Builder
	if err := offline.AcceptLoss(t.Context(), dir, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	n, c = start(t, dir)
	defer stop(t, n)
	var seen int
	for ev, err := range c.ReadEvents(t.Context(), client.EventRange{EntityType: "counter", EntityID: "a"}) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("cmd-%03d", seen); ev.CommandID != want {
			t.Fatalf("event %d is of command %s, want %s", seen, ev.CommandID, want)
		}
		seen++
	}
	if seen != 25 {
		t.Fatalf("%d events are left of the 25 before the damage", seen)
	}
}
