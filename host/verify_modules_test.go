package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/offline"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestVerifyReportsMissingModules: on a single node, verify reports a module that is in
// the metadata but has no file, whether the metadata is in its store already or
// only in its log. Uploading the module again repairs it.
func TestVerifyReportsMissingModules(t *testing.T) {
	dir := t.TempDir()
	wasm := testkit.BuildExample(t, "counter")
	verify := func(want int, says string) {
		t.Helper()
		var out strings.Builder
		faults, err := offline.Verify(t.Context(), dir, &out)
		if err != nil || faults != want || !strings.Contains(out.String(), says) {
			t.Errorf("%d faults, want %d: %v\n%s", faults, want, err, &out)
		}
	}
	add := func(c *client.Client) error {
		_, err := c.Send(t.Context(), client.Command{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte(`{"amount":1}`)})
		return err
	}
	n, c := start(t, dir)
	up, err := c.Upload(t.Context(), wasm, true)
	if err == nil {
		err = add(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	stop(t, n)
	verify(0, "modules: 1 modules")
	leftover := filepath.Join(dir, "modules", "half.tmp")
	for _, err := range []error{
		os.Remove(filepath.Join(dir, "modules", up.Digest+".wasm")),
		os.WriteFile(leftover, []byte("half"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	verify(1, "FAULT modules: module file "+up.Digest+".wasm is missing (counter ")
	if _, err := os.Stat(leftover); err != nil {
		t.Errorf("a look has changed what it looked at: %v", err)
	}
	n, c = start(t, dir)
	if _, err := c.Upload(t.Context(), wasm, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the type is served again", func() bool { return add(c) == nil })
	stop(t, n)
	verify(0, "modules: 1 modules")
}
