package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// longCommand is a command of the program in progress.
type longCommand struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer for the output of the command.
func (r *longCommand) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = append(r.text, p...)
	return len(p), nil
}

func (r *longCommand) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.text)
}

// run starts a command at a node.
func run(t *testing.T, n *testkit.Node, args ...string) *longCommand {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	r := &longCommand{t: t, cmd: exec.CommandContext(ctx, n.Program(), append(args, "--addr", n.API())...), done: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = r, r
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait() // the exit code is checked later
		cancel()
	}()
	return r
}

// await waits until the command has printed a text. It returns false if the
// command has ended without printing it.
func (r *longCommand) await(text string) bool {
	for {
		if strings.Contains(r.output(), text) {
			return true
		}
		select {
		case <-r.done:
			return strings.Contains(r.output(), text)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// interrupt sends SIGINT, as Ctrl-C does, once the command has printed a text,
// and checks that the command fails with a message about the interruption.
func (r *longCommand) interrupt(once string) {
	r.t.Helper()
	if !r.await(once) {
		r.t.Fatalf("%v ended with %d before it was interrupted: %s", r.cmd.Args[1:], r.code(), r.output())
	}
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.t.Fatal(err)
	}
	if code := r.code(); code != 1 || !strings.Contains(r.output(), "hostd: interrupted") {
		r.t.Errorf("%v, interrupted: exit code %d, %s", r.cmd.Args[1:], code, r.output())
	}
}

// code waits until the command has ended and returns its exit code, which is -1
// if it did not end by itself.
func (r *longCommand) code() int {
	<-r.done
	return r.cmd.ProcessState.ExitCode()
}

// TestOrdersOutliveTheirCommands checks that 'node drain' ends at its timeout
// and when it is interrupted, even if no node can take over the leaderships,
// and that the cluster keeps the order until it is revoked.
func TestOrdersOutliveTheirCommands(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 2})
	n := c.Node(0)
	c.Kill(2)
	if out, code := n.Run("node", "drain", "n2", "--addr", n.API()); code != 0 {
		t.Fatalf("node drain: exit code %d, %s", code, out)
	}
	pending := func() bool { // n1 has no node to which it can transfer its leaderships
		for _, o := range c.Overview(0).GetPendingOperations() {
			if o.GetNodeId() == "n1" && o.GetKind() == "drain" {
				return true
			}
		}
		return false
	}
	late := run(t, n, "node", "drain", "n1", "--timeout", "4s")
	if code := late.code(); code != 1 || !strings.Contains(late.output(), "the operation is pending") || strings.Contains(late.output(), "--command-id") {
		t.Errorf("node drain at its timeout: exit code %d, %s", code, late.output())
	}
	if !pending() {
		t.Error("the order is not pending after its command has ended")
	}
	run(t, n, "node", "drain", "n1").interrupt("n1 still leads")
	if !pending() {
		t.Error("the order is not pending after its command was interrupted")
	}
	if out, code := n.Run("node", "resume", "n1", "--addr", n.API()); code != 0 {
		t.Fatalf("node resume: exit code %d, %s", code, out)
	}
	c.Await("the order is taken back", func() bool { return !pending() })
}

// TestVerificationsEndWithTheirCommands checks that 'module verify' ends at its
// timeout and when it is interrupted, and that the node then verifies for the
// next command, because only one verification runs at a time.
func TestVerificationsEndWithTheirCommands(t *testing.T) {
	t.Parallel()
	n := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--verify-rate", "40"}}) // verify about two entities a second
	n.Push("counter")
	c := n.Client(client.Options{Timeout: testkit.Patience})
	for i := range 200 {
		if _, err := c.Send(t.Context(), client.Command{EntityType: "counter", EntityID: fmt.Sprint("c", i), Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := c.ActiveModule(t.Context(), "counter")
	if err != nil {
		t.Fatal(err)
	}
	digest := b.GetModule().GetDigest()
	late := run(t, n, "module", "verify", "counter", digest, "--all", "--timeout", "2s")
	if code := late.code(); code != 1 || !strings.Contains(late.output(), "longer --timeout") {
		t.Errorf("module verify at its timeout: exit code %d, %s", code, late.output())
	}
	run(t, n, "module", "verify", "counter", digest, "--all").interrupt("replayed ")
	n.Until("another verification runs", func() error {
		if out, code := n.Run("module", "verify", "counter", digest, "--sample", "1", "--addr", n.API()); code != 0 {
			return fmt.Errorf("exit code %d, %s", code, out)
		}
		return nil
	})
}

// TestActivationsOutliveTheirCommands checks that 'module activate' ends when it
// is interrupted while the cluster compares the module with truncated histories,
// that it does not wait with --wait=false, and that the cluster completes the
// activation nevertheless.
func TestActivationsOutliveTheirCommands(t *testing.T) {
	t.Parallel()
	n := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--verify-rate", "40"}})
	c := n.Client(client.Options{Timeout: testkit.Patience})
	digests := map[string]string{}
	for _, name := range []string{"before", "slow"} {
		up, err := c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/entities/ledgers/"+name), name == "before")
		if err != nil {
			t.Fatal(err)
		}
		digests[name] = up.Digest
	}
	for i := range 4 {
		for range 45 {
			if _, err := c.Send(t.Context(), client.Command{EntityType: "ledger", EntityID: fmt.Sprint("l", i), Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.Await("the first events of a ledger are gone", func() bool {
		for _, err := range c.ReadEvents(t.Context(), client.EventRange{EntityType: "ledger", EntityID: "l0"}) {
			return err != nil && strings.Contains(err.Error(), "before sequence ")
		}
		return false
	})
	serves := func(name string) func() bool {
		return func() bool {
			m, err := c.ActiveModule(t.Context(), "ledger")
			return err == nil && m.GetModule().GetDigest() == digests[name]
		}
	}
	run(t, n, "module", "activate", "ledger", digests["slow"]).interrupt("comparing the module")
	n.Await("the module serves, although its command was interrupted", serves("slow"))
	back := run(t, n, "module", "activate", "ledger", digests["before"], "--wait=false")
	if code := back.code(); code != 0 {
		t.Errorf("activate without a wait: exit code %d, %s", code, back.output())
	}
	n.Await("the earlier module serves again", serves("before"))
}
