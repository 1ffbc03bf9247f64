package api

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestExportAndImportThroughPipes checks that an export to standard output equals an
// export to a file, that an import from standard input restores it in another
// cluster, and that a truncated archive imports nothing.
func TestExportAndImportThroughPipes(t *testing.T) {
	testkit.Long(t, "long")
	from := testkit.StartNode(t, testkit.NodeOptions{})
	from.Push("counter")
	source := from.Client(client.Options{Timeout: testkit.Patience})
	testkit.AddToCounters(t, source, 1)
	journal := func(n *testkit.Node, in []byte, args ...string) (out, errOut []byte, ok bool) {
		cmd := exec.Command(testkit.Program(t), append([]string{"journal"}, args...)...)
		if args[0] != "verify" {
			cmd.Args = append(cmd.Args, "--addr", n.API())
		}
		var o, e bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = bytes.NewReader(in), &o, &e, t.TempDir()
		err := cmd.Run()
		if left, _ := os.ReadDir(cmd.Dir); len(left) > 0 {
			t.Errorf("%s leaves %v", args, left)
		}
		return o.Bytes(), e.Bytes(), err == nil
	}
	archive, said, ok := journal(from, nil, "export", "-")
	if !ok || len(archive) == 0 {
		t.Fatalf("export: %d bytes, %s", len(archive), said)
	}
	told, said, ok := journal(nil, archive, "verify", "-")
	if !ok || !strings.Contains(string(told), "digest") {
		t.Fatalf("verify: %s%s", told, said)
	}
	if _, said, ok := journal(from, archive, "import", "-"); ok || len(said) == 0 {
		t.Error("a cluster with entities took an import")
	}
	to := testkit.StartNode(t, testkit.NodeOptions{})
	if _, said, ok := journal(to, archive[:len(archive)-1], "import", "-"); ok || !strings.Contains(string(said), "nothing was imported") {
		t.Errorf("one that was cut short: %s", said)
	}
	if _, said, ok := journal(to, archive, "import", "-"); !ok {
		t.Fatalf("import: %s", said)
	}
	testkit.AddToCounters(t, to.Client(client.Options{Timeout: testkit.Patience}), 2)
	file := filepath.Join(t.TempDir(), "file")
	if _, said, ok := journal(from, nil, "export", file); !ok {
		t.Fatalf("export to a file: %s", said)
	}
}
