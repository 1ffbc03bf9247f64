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

// NodeOptions describe a node. The zero value is a node with 8 shards and a
// data directory of its own.
type NodeOptions struct {
	DataDir string   // the node creates it; a temporary directory if empty
	Program string   // path of a program to run instead of this repository's
	Planted []string // faults to plant in the program, by their names under tests
	Shards  int      // number of shards; 0 means 8
	Flags   []string // additional flags of serve
	ID      string   // node ID; the default of serve if empty
	Listen  string   // address; a free address if empty
	Token   string   // default token of clients
	// TLS configures clients once the node accepts only TLS.
	TLS *tls.Config
}

// Node is one node in a process of its own. A test can start and kill it
// repeatedly on the same data and address. Only the test's goroutine may call
// its methods, except for API and the client that Client returns.
type Node struct {
	t      testing.TB
	opts   NodeOptions
	path   string
	listen string
	peer   string // address for other nodes; in the previous release, the address for clients
	ports  string // file that the process writes when it is ready
	scheme string // scheme of the node's URL
	log    tail
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process has ended
}

// NewNode returns a node that is not started yet. The end of the test kills it
// and, if the test failed, prints the end of its log.
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

// StartNode returns a node that is ready.
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

// TryStart is like Start, for a node that may fail to start. The error
// describes how the process ended, and Log returns the reason.
func (n *Node) TryStart() error {
	n.t.Helper()
	if err := n.Launch(); err != nil {
		return err
	}
	return n.AwaitReady()
}

// Use makes the node's next process run a different program.
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
	// Tests stop and slow down nodes so often that with the default cooldown
	// they would lead no shard for minutes.
	cooldown := "HOSTD_LEADERSHIP_COOLDOWN"
	if isRelease(n.path) {
		cooldown = "HOSTD_LEAD_AGAIN_AFTER" // the variable's name before 0.2.0
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
		_ = cmd.Wait() // the outcome is read from ProcessState
	}(n.cmd, n.ended)
	return nil
}

// AwaitReady waits until the launched node is ready.
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
		res, err := http.Get("http://" + n.listen + "/readyz") // served without TLS
		if err != nil {
			return false
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode == http.StatusOK
	})
}

// wait waits until a condition holds. It fails if the process ends.
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

// Await waits until a condition holds, and fails the test if the process ends.
func (n *Node) Await(what string, condition func() bool) {
	n.t.Helper()
	if err := n.wait(condition); err != nil {
		n.t.Fatalf("wait until %s: %v\n%s", what, err, n.Log())
	}
}

// Until waits until a condition returns nil, and fails the test if the process
// ends. The failure includes the condition's last error.
func (n *Node) Until(what string, condition func() error) {
	n.t.Helper()
	var last error
	if err := n.wait(func() bool { last = condition(); return last == nil }); err != nil {
		n.t.Fatalf("wait until %s: %v: %v\n%s", what, err, last, n.Log())
	}
}

// Running reports whether the process is running.
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

// Kill ends the process with SIGKILL and waits until it is gone. It does
// nothing if the node is not running.
func (n *Node) Kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill() // the process may have ended already
	<-n.ended
}

// Stop stops the node, and fails the test unless it stops gracefully.
func (n *Node) Stop() {
	n.t.Helper()
	if err := n.stop(); err != nil {
		n.t.Fatalf("%v\n%s", err, n.Log())
	}
}

// stop is like Stop, for use in any goroutine.
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

// Pause stops the process with SIGSTOP: it keeps its connections but answers
// nothing until Continue. Pause returns when every thread has stopped, because
// on a busy machine some threads run on for a moment after the signal and still
// answer requests.
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
		return true // also if there is no /proc
	})
}

// Continue undoes Pause.
func (n *Node) Continue() { n.signal(syscall.SIGCONT) }

// Hangup makes the process reload its files, with SIGHUP.
func (n *Node) Hangup() { n.signal(syscall.SIGHUP) }

func (n *Node) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatalf("send %v to the node: %v", s, err)
	}
}

// ExitCode returns the exit code of the latest process, or -1 if a signal ended
// it.
func (n *Node) ExitCode() int { return n.cmd.ProcessState.ExitCode() }

// Run runs another command of the node's program. It returns its output and its
// exit code.
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

// Program returns the path of the node's program.
func (n *Node) Program() string { return n.path }

// Verify runs `hostd verify` on the data directory of the stopped node. It
// returns the output and the exit code.
func (n *Node) Verify() (string, int) {
	n.t.Helper()
	return n.Run("verify", n.opts.DataDir)
}

// MustVerify fails the test unless `hostd verify` finds no damage.
func (n *Node) MustVerify() {
	n.t.Helper()
	if out, code := n.Verify(); code != 0 {
		n.t.Fatalf("hostd verify ended with exit code %d:\n%s", code, out)
	}
}

// PeerAPI returns the URL of the services for other nodes. The node must have
// served once.
func (n *Node) PeerAPI() string { return "http://" + n.peer }

// API returns the URL of the node without a trailing slash. The node must have
// served once.
func (n *Node) API() string { return n.scheme + "://" + n.listen }

// Address returns host and port of the node. The node must have served once.
func (n *Node) Address() string { return n.listen }

// Signal sends the process a signal.
func (n *Node) Signal(s syscall.Signal) { n.t.Helper(); n.signal(s) }

// SetFlags replaces NodeOptions.Flags for the node's next processes.
func (n *Node) SetFlags(flags ...string) { n.opts.Flags = flags }

// Flags returns NodeOptions.Flags.
func (n *Node) Flags() []string { return slices.Clone(n.opts.Flags) }

// DataDir returns the node's data directory.
func (n *Node) DataDir() string { return n.opts.DataDir }

// Log returns the log of the latest process: its beginning and its end.
func (n *Node) Log() string { return n.log.String() }

// ID returns the node's ID.
func (n *Node) ID() string {
	if n.opts.ID == "" {
		return "n1" // the default of serve
	}
	return n.opts.ID
}

// Client returns a client of the node that is closed when the test ends.
func (n *Node) Client(opts client.Options) *client.Client {
	n.t.Helper()
	if opts.TLS == nil && n.scheme == "https" {
		opts.TLS = n.opts.TLS
	}
	opts.Token = cmp.Or(opts.Token, n.opts.Token)
	if n.opts.Program != "" && opts.HTTPClient == nil {
		opts.HTTPClient = formerClient()
		n.t.Cleanup(opts.HTTPClient.CloseIdleConnections)
	}
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
