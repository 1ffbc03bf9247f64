package host_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/offline"
	"github.com/hostd/hostd/tests/support/testkit"
)

// flip changes bytes in the middle of a file.
func flip(t *testing.T, pattern string) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no file %s: %v", pattern, err)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	// Several bytes are changed, because a single changed byte may have no
	// effect: in a compressed block it could select another copy of the same
	// run.
	for i := range min(16, len(data)/2) {
		data[len(data)/2+i] ^= 4
	}
	if err := os.WriteFile(names[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// told runs a recovery step and checks that its output contains want.
func told(t *testing.T, want string, step func(out *bytes.Buffer) error) {
	t.Helper()
	var out bytes.Buffer
	if err := step(&out); err != nil || !strings.Contains(out.String(), want) {
		t.Fatalf("%v, it said\n%s\nwant %q", err, out.String(), want)
	}
}

// refuses runs a recovery step and checks that its error contains want.
func refuses(t *testing.T, want string, step func(out *bytes.Buffer) error) {
	t.Helper()
	if err := step(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v, want %q", err, want)
	}
}

// The metadata shard is rebuilt on its node. Then it is rebuilt again after the
// new state was damaged before anything was read, and once more after all of it
// was lost. Afterwards the entities still have all acknowledged events.
func TestMetadataIsRebuilt(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "n1.json")
	inspect := func(out *bytes.Buffer) error { return offline.Inspect(t.Context(), dir, file, out) }
	rebuild := func(out *bytes.Buffer) error { return offline.RebuildMetadata(dir, []string{file}, out) }
	total := func(want string, push bool) {
		t.Helper()
		n, c := start(t, dir)
		if push {
			if _, err := c.Upload(t.Context(), testkit.BuildExample(t, "counter"), true); err != nil {
				t.Fatal(err)
			}
		}
		reply, err := c.Send(t.Context(), client.Command{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte(`{"amount":1}`)})
		if err != nil || string(reply.Data) != want {
			t.Fatalf("%s, %v, want %s", reply.Data, err, want)
		}
		stop(t, n)
	}
	refusesToStart := func(want string) {
		t.Helper()
		cfg := config.Default()
		cfg.DataDir, cfg.Listen = dir, "127.0.0.1:0"
		if _, err := host.Start(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("it started, or said otherwise than %q: %v", want, err)
		}
	}
	total(`{"total":1}`, true)
	rebound(t, dir)
	told(t, "metadata: ", inspect)
	told(t, "2 modules, 1 entity types", rebuild)
	total(`{"total":2}`, false)
	refuses(t, "was started after its file was created", rebuild)

	told(t, "metadata: ", inspect)
	told(t, "restarts on this node", rebuild)
	told(t, "restarts on this node", rebuild)
	interrupted(t, dir)
	refusesToStart("the rebuild of the metadata was interrupted")
	refuses(t, "the rebuild of the metadata was interrupted", inspect)
	told(t, "restarts on this node", rebuild)

	flip(t, filepath.Join(dir, "snapshots", "*.snapshot"))
	refusesToStart("snapshot of shard 0")
	told(t, "metadata: not readable", inspect)
	told(t, "no node has readable metadata", rebuild)
	total(`{"total":3}`, true)

	flip(t, filepath.Join(dir, "store", "*.sst"))
	refuses(t, "the node's data is damaged", inspect)
}

// rebound activates another module for the same type and switches back, so that
// the type ends at a revision that takes several activations to reach.
func rebound(t *testing.T, dir string) {
	t.Helper()
	n, c := start(t, dir)
	module := testkit.BuildExample(t, "counter")
	other := append(bytes.Clone(module), 0, 2, 1, 'x') // a custom section without meaning
	for _, m := range [][]byte{other, module, other, module} {
		if _, err := c.Upload(t.Context(), m, true); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Query(t.Context(), client.Query{EntityType: "counter", EntityID: "a", Name: "total"}); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, n)
}

// interrupted makes a directory look as if RebuildMetadata was interrupted.
func interrupted(t *testing.T, dir string) {
	t.Helper()
	name := filepath.Join(dir, "node.json")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Replace(data, []byte("{"), []byte(`{"rebuildingMetadata": true,`), 1)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
