package testkit

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/loopback"
)

// Patience bounds every wait of this package for something that must happen.
const Patience = time.Minute

// NodeOptions say which node a test wants. The zero value is a node of 8
// shards in a directory of the test's own.
type NodeOptions struct {
	DataDir string   // made by the node; a directory of the test's when empty
	Program string   // another than that of this repository, by its path
	Planted []string // faults of the program, by their names under tests
	Shards  int      // 8 when 0
	Flags   []string // more flags of serve
	ID      string   // its name; that of serve when empty
	Listen  string   // its address; one of its own when empty
	Token   string   // that its clients send unless they are given one
	// TLS is how clients know the node once it takes calls over TLS only.
	TLS *tls.Config
}

// Node is one node as a process of its own. It is started, killed and started
// again on the same data and address. Its methods are for the goroutine of the
// test, except API and Client's result.
type Node struct {
	t      testing.TB
	opts   NodeOptions
	path   string
	listen string
	peer   string // where it serves other nodes; that of clients in the release before
	ports  string // file that the process writes when it is ready
	scheme string // of its URL
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
	if opts.Listen == "" {
		opts.Listen = loopback.Host() + ":0"
	}
	path := opts.Program
	if path == "" {
		path = Program(t, opts.Planted...)
	}
	n := &Node{t: t, opts: opts, path: path, listen: opts.Listen, scheme: "http"}
	t.Cleanup(func() {
		n.Kill()
		if err := keepCache(testPackage(), n.opts.DataDir); err != nil && !t.Failed() {
			t.Logf("nothing is kept of what %s compiled: %v", n.ID(), err)
		}
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", n.ID(), n.Log())
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
	if err := n.Launch(); err != nil {
		return err
	}
	return n.AwaitReady()
}

// Use has the node run another program from its next start on.
func (n *Node) Use(program string) { n.path = program }

// Launch starts the process and returns at once.
func (n *Node) Launch() error {
	n.t.Helper()
	if err := giveCache(testPackage(), n.opts.DataDir); err != nil {
		return err
	}
	n.ports = filepath.Join(n.t.TempDir(), "ports.json")
	n.log.reset()
	args := []string{
		"serve", "--data-dir", n.opts.DataDir, "--listen", n.listen, "--shards", strconv.Itoa(n.opts.Shards), "--admin", "full",
		"--wal-segment-bytes", "8MiB", "--log-format", "text", "--ports-file", n.ports,
	}
	if n.opts.ID != "" {
		args = append(args, "--node-id", n.opts.ID)
	}
	n.cmd = exec.Command(n.path, append(args, n.opts.Flags...)...)
	// Tests stop and slow down nodes so often that they would lead nothing for
	// minutes.
	cooldown := "HOSTD_LEADERSHIP_COOLDOWN"
	if isRelease(n.path) {
		cooldown = "HOSTD_LEAD_AGAIN_AFTER" // its name before 0.2.0
	}
	n.cmd.Env = append(os.Environ(), cooldown+"=200ms")
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
	return nil
}

// AwaitReady waits until the node that was launched serves.
func (n *Node) AwaitReady() error {
	var file struct{ Nodes []struct{ API, Peer string } }
	if err := n.wait(func() bool {
		text, err := os.ReadFile(n.ports)
		return err == nil && json.Unmarshal(text, &file) == nil && len(file.Nodes) == 1
	}); err != nil {
		return err
	}
	n.scheme, n.listen, _ = strings.Cut(file.Nodes[0].API, "://")
	n.peer = cmp.Or(file.Nodes[0].Peer, n.listen)
	return n.wait(func() bool {
		res, err := http.Get("http://" + n.listen + "/readyz") // which needs no TLS
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

// Until waits, while the node runs, until a condition has nothing to object.
// What it objected to last is in the failure.
func (n *Node) Until(what string, condition func() error) {
	n.t.Helper()
	var last error
	if err := n.wait(func() bool { last = condition(); return last == nil }); err != nil {
		n.t.Fatalf("wait until %s: %v: %v\n%s", what, err, last, n.Log())
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
	if err := n.stop(); err != nil {
		n.t.Fatalf("%v\n%s", err, n.Log())
	}
}

// stop is Stop for any goroutine.
func (n *Node) stop() error {
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", n.ID(), err)
	}
	select {
	case <-n.ended:
	case <-time.After(Patience):
		return fmt.Errorf("%s does not stop", n.ID())
	}
	if code := n.ExitCode(); code != 0 {
		return fmt.Errorf("%s stopped with exit code %d", n.ID(), code)
	}
	return nil
}

// Pause stops the process with SIGSTOP: it holds its connections and answers
// nothing until Continue. It returns when every thread has stopped: on a busy
// machine some go on for a moment after the signal, and answer what comes.
func (n *Node) Pause() {
	n.t.Helper()
	n.signal(syscall.SIGSTOP)
	n.Await("every thread of the node has stopped", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.cmd.Process.Pid))
		for _, file := range threads {
			text, err := os.ReadFile(file)
			if _, state, ok := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " "); err == nil && (!ok || state[0] != 'T') {
				return false
			}
		}
		return true // also where there is no /proc
	})
}

// Continue undoes Pause.
func (n *Node) Continue() { n.signal(syscall.SIGCONT) }

// Hangup has the process read its files again, with SIGHUP.
func (n *Node) Hangup() { n.signal(syscall.SIGHUP) }

func (n *Node) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatalf("send %v to the node: %v", s, err)
	}
}

// ExitCode is that of the process that ended last, -1 when a signal ended it.
func (n *Node) ExitCode() int { return n.cmd.ProcessState.ExitCode() }

// Run runs another command of the node's program and returns what it printed
// and its exit code.
func (n *Node) Run(args ...string) (string, int) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.path, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		n.t.Fatalf("hostd %s: %v", args[0], err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// Program is the path of the node's program.
func (n *Node) Program() string { return n.path }

// Verify runs the offline check over the data of the stopped node and returns
// what it printed and its exit code.
func (n *Node) Verify() (string, int) {
	n.t.Helper()
	return n.Run("verify", n.opts.DataDir)
}

// MustVerify demands that the offline check finds nothing.
func (n *Node) MustVerify() {
	n.t.Helper()
	if out, code := n.Verify(); code != 0 {
		n.t.Fatalf("hostd verify ended with exit code %d:\n%s", code, out)
	}
}

// PeerAPI is the URL of its services for other nodes, once it has served.
func (n *Node) PeerAPI() string { return "http://" + n.peer }

// API is the node's URL once it has served, without a slash at its end.
func (n *Node) API() string { return n.scheme + "://" + n.listen }

// Address is the node's host and port once it has served.
func (n *Node) Address() string { return n.listen }

// Signal sends the process a signal.
func (n *Node) Signal(s syscall.Signal) { n.t.Helper(); n.signal(s) }

// SetFlags has the node run with other flags of NodeOptions.Flags from its next
// start on.
func (n *Node) SetFlags(flags ...string) { n.opts.Flags = flags }

// Flags are those of NodeOptions.Flags.
func (n *Node) Flags() []string { return slices.Clone(n.opts.Flags) }

// DataDir is the node's data directory.
func (n *Node) DataDir() string { return n.opts.DataDir }

// Log is the end of what the process that was started last has written.
func (n *Node) Log() string { return n.log.String() }

// ID is the node's name.
func (n *Node) ID() string {
	if n.opts.ID == "" {
		return "n1" // the default of serve
	}
	return n.opts.ID
}

// Client returns a client of the node that is closed with the test.
func (n *Node) Client(opts client.Options) *client.Client {
	n.t.Helper()
	if opts.TLS == nil && n.scheme == "https" {
		opts.TLS = n.opts.TLS
	}
	opts.Token = cmp.Or(opts.Token, n.opts.Token)
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
