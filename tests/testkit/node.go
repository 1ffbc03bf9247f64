package testkit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
)

// Patience bounds every wait of this package for something that must happen.
const Patience = time.Minute

// NodeOptions say which node a test wants. The zero value is a node of 8
// shards in a directory of the test's own.
type NodeOptions struct {
	DataDir string   // made by the node; a directory of the test's when empty
	Tags    []string // build tags of the program
	Shards  int      // 8 when 0
	Flags   []string // more flags of serve
}

// Node is one node as a process of its own. It is started, killed and started
// again on the same data and address. Its methods are for the goroutine of the
// test, except API and Client's result.
type Node struct {
	t      testing.TB
	opts   NodeOptions
	path   string
	listen string
	log    tail
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process has been waited for
}

// NewNode returns a node that is not started yet. It is killed at the end of
// the test, and the end of its log is shown when the test has failed.
func NewNode(t testing.TB, opts NodeOptions) *Node {
	t.Helper()
	if opts.DataDir == "" {
		opts.DataDir = filepath.Join(t.TempDir(), "data")
	}
	if opts.Shards == 0 {
		opts.Shards = 8
	}
	// An address of the node's own within the loopback network: nothing else
	// takes its port while the node is down, not even a client that dials it.
	listen := fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(250), rand.IntN(256), 1+rand.IntN(250))
	n := &Node{t: t, opts: opts, path: Program(t, opts.Tags...), listen: listen}
	t.Cleanup(func() {
		n.Kill()
		if t.Failed() {
			t.Logf("the end of the node's log:\n%s", n.Log())
		}
	})
	return n
}

// StartNode returns a node that serves.
func StartNode(t testing.TB, opts NodeOptions) *Node {
	t.Helper()
	n := NewNode(t, opts)
	n.Start()
	return n
}

// Start starts the process and returns once the node serves all its shards.
func (n *Node) Start() {
	n.t.Helper()
	if err := n.TryStart(); err != nil {
		n.t.Fatalf("start the node: %v\n%s", err, n.Log())
	}
}

// TryStart is Start for a node that may refuse: the error says how the process
// ended, and Log why.
func (n *Node) TryStart() error {
	n.t.Helper()
	ports := filepath.Join(n.t.TempDir(), "ports.json")
	n.log.reset()
	n.cmd = exec.Command(n.path, append([]string{
		"serve", "--data-dir", n.opts.DataDir, "--listen", n.listen, "--shards", strconv.Itoa(n.opts.Shards), "--admin", "full",
		"--wal-segment-bytes", "8MiB", "--log-format", "text", "--ports-file", ports,
	}, n.opts.Flags...)...)
	n.cmd.Stderr = &n.log
	n.cmd.WaitDelay = Patience
	if err := n.cmd.Start(); err != nil {
		n.cmd = nil
		return err
	}
	n.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait() // its outcome is in ProcessState
	}(n.cmd, n.ended)
	var file struct{ Nodes []struct{ API string } }
	if err := n.wait(func() bool {
		text, err := os.ReadFile(ports)
		return err == nil && json.Unmarshal(text, &file) == nil && len(file.Nodes) == 1
	}); err != nil {
		return err
	}
	n.listen = strings.TrimPrefix(file.Nodes[0].API, "http://")
	return n.wait(func() bool {
		res, err := http.Get(n.API() + "/readyz")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode == http.StatusOK
	})
}

// wait waits for a condition while the process lives.
func (n *Node) wait(condition func() bool) error {
	for deadline := time.Now().Add(Patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if !n.Running() {
			return fmt.Errorf("the process ended: %s", n.cmd.ProcessState)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s", Patience)
		}
	}
	return nil
}

// Await waits for a condition while the node runs.
func (n *Node) Await(what string, condition func() bool) {
	n.t.Helper()
	if err := n.wait(condition); err != nil {
		n.t.Fatalf("wait until %s: %v\n%s", what, err, n.Log())
	}
}

// Running reports whether the process lives.
func (n *Node) Running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// Kill ends the process with SIGKILL and returns when it is gone. It does
// nothing to a node that does not run.
func (n *Node) Kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill() // it may have ended
	<-n.ended
}

// Stop asks the node to stop, and demands that it does so in order.
func (n *Node) Stop() {
	n.t.Helper()
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		n.t.Fatal(err)
	}
	select {
	case <-n.ended:
	case <-time.After(Patience):
		n.t.Fatalf("the node does not stop\n%s", n.Log())
	}
	if code := n.ExitCode(); code != 0 {
		n.t.Fatalf("the node stopped with exit code %d\n%s", code, n.Log())
	}
}

// ExitCode is that of the process that ended last, -1 when a signal ended it.
func (n *Node) ExitCode() int { return n.cmd.ProcessState.ExitCode() }

// Verify runs the offline check over the data of the stopped node and returns
// what it printed and its exit code.
func (n *Node) Verify() (string, int) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.path, "verify", n.opts.DataDir)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		n.t.Fatalf("hostd verify: %v", err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// MustVerify demands that the offline check finds nothing.
func (n *Node) MustVerify() {
	n.t.Helper()
	if out, code := n.Verify(); code != 0 {
		n.t.Fatalf("hostd verify ended with exit code %d:\n%s", code, out)
	}
}

// API is the node's URL once it has served, without a slash at its end.
func (n *Node) API() string { return "http://" + n.listen }

// DataDir is the node's data directory.
func (n *Node) DataDir() string { return n.opts.DataDir }

// Log is the end of what the process that was started last has written.
func (n *Node) Log() string { return n.log.String() }

// Client returns a client of the node that is closed with the test.
func (n *Node) Client(opts client.Options) *client.Client {
	n.t.Helper()
	c, err := client.New([]string{n.API()}, opts)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	return c
}

// Push uploads example modules and activates them.
func (n *Node) Push(examples ...string) {
	n.t.Helper()
	c := n.Client(client.Options{Timeout: Patience})
	for _, name := range examples {
		if _, err := c.Upload(context.Background(), BuildExample(n.t, name), true); err != nil {
			n.t.Fatalf("push %s: %v\n%s", name, err, n.Log())
		}
	}
}
