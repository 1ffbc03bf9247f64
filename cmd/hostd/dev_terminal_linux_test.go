package main

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestDevRestartsNodeOnEnter checks that on a terminal dev does not end with its
// last node, and that Enter restarts the node with everything it has
// acknowledged.
func TestDevRestartsNodeOnEnter(t *testing.T) {
	screen, keys := testkit.Terminal(t)
	ports, data := filepath.Join(t.TempDir(), "ports.json"), filepath.Join(t.TempDir(), "data")
	testkit.ShareCache(t, filepath.Join(data, "n1"))
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{interrupt: cancel, ended: make(chan struct{})}
	args := []string{"dev", "--module", counterFile(t), "--listen", "127.0.0.1:0", "--data", data, "--ports-file", ports}
	go func() {
		defer close(r.ended)
		r.code = run(ctx, args, cli.Stdio{In: screen, Out: &r.out, Err: &r.err})
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
		if t.Failed() {
			t.Log(r.err.String())
		}
	})
	node := r.ready(t, ports)
	if got := hostd(t, "entity", "send", "counter", "a", "add", `{"amount":3}`, "--addr", node.API); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if err := syscall.Kill(node.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the node is told", func() bool { return strings.Contains(r.err.String(), "press Enter to restart it") })
	if _, err := keys.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is back", func() bool { return strings.Contains(r.err.String(), " is running again at ") })
	back := r.ready(t, ports)
	if back.PID == node.PID {
		t.Errorf("pid %d is back", back.PID)
	}
	if got := hostd(t, "entity", "query", "counter", "a", "total", "--addr", back.API); got.out != `{"total":3}`+"\n" {
		t.Errorf("%+v", got)
	}
	r.interrupt()
	if code := r.end(t); code != 0 {
		t.Errorf("dev ended with %d", code)
	}
}
