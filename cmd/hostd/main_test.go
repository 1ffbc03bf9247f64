package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
	"github.com/hostd/hostd/tests/support/testkit"
)

// asProgram makes the test binary behave as hostd, so that the children of dev,
// demo and bench run the code under test.
const asProgram = "HOSTD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	// A node starts its compiler with an empty environment.
	if os.Getenv(asProgram) != "" || len(os.Args) == 2 && os.Args[1] == compileCommand {
		main()
		return
	}
	os.Setenv(asProgram, "1")
	// With the race detector, compiling a module takes longer than a server
	// waits by default.
	os.Setenv("HOSTD_MAX_DEADLINE", "5m")
	os.Unsetenv("HOSTD_ADDR")
	os.Unsetenv("HOSTD_TOKEN_FILE")
	// The tests must not use the contexts of the user who runs them.
	os.Setenv("XDG_CONFIG_HOME", filepath.Join(os.TempDir(), "hostd-test-without-contexts"))
	os.Exit(testkit.Main(m))
}

// lockedBuffer is written by a command and read by the test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// outcome is the result of a command line.
type outcome struct {
	code     int
	out, err string
}

// hostd runs one command line to its end.
func hostd(t *testing.T, args ...string) outcome {
	t.Helper()
	return hostdIn(t, "", args...)
}

func hostdIn(t *testing.T, in string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out, errs lockedBuffer
	code := run(ctx, args, cli.Stdio{In: strings.NewReader(in), Out: &out, Err: &errs})
	return outcome{code, out.String(), errs.String()}
}

// running is a command line that runs until it is stopped.
type running struct {
	interrupt context.CancelFunc
	ended     chan struct{}
	code      int // valid once ended is closed
	out, err  lockedBuffer
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{interrupt: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.code = run(ctx, args, cli.Stdio{In: strings.NewReader(""), Out: &r.out, Err: &r.err})
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
		if t.Failed() {
			t.Logf("hostd %s:\n%s%s", strings.Join(args, " "), r.out.String(), r.err.String())
		}
	})
	return r
}

// end waits for the command and returns its exit code.
func (r *running) end(t *testing.T) int {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(time.Minute):
		t.Fatal("the command does not end")
	}
	return r.code
}

// eventually waits for a condition, which what describes.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// ready waits for the ports file of a running command, with one node.
func (r *running) ready(t *testing.T, ports string) devcluster.NodeInfo {
	t.Helper()
	nodes := r.allReady(t, ports)
	if len(nodes) != 1 {
		t.Fatalf("ports file: %+v", nodes)
	}
	return nodes[0]
}

// allReady waits for the ports file of a running command.
func (r *running) allReady(t *testing.T, ports string) []devcluster.NodeInfo {
	t.Helper()
	var p devcluster.PortsFile
	eventually(t, "the ports file is written", func() bool {
		select {
		case <-r.ended:
			t.Fatalf("it ended with %d: %s", r.code, r.err.String())
		default:
		}
		var err error
		p, err = devcluster.ReadPorts(ports)
		return err == nil
	})
	return p.Nodes
}

// counterFile writes the counter module to a file.
func counterFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "counter.wasm")
	if err := os.WriteFile(path, testkit.BuildExample(t, "counter"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// decode reads JSON that a command printed.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&v); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return v
}

// The JSON of lists, as far as the tests use it. The names are public.
type (
	clusterView struct {
		NodeID, Coordinator string
		Quorum              bool
		ShardCount          int
		Members             []memberView
	}
	memberView struct {
		NodeID, Address, Status, Version string
		Reachable                        bool
		Roles                            []string
		LeaderCount, ReplicaCount        *int
		ClockSkew                        string
	}
	shardView struct {
		ShardID          int
		Leader           string
		Term             *uint64
		Voters, Learners []string
		Stopped          []string
	}
	moduleView struct {
		Digest, Name           string
		EntityTypes, ActiveFor []string
		Activations            []activationView
	}
	settingView struct {
		Key, Value string
		Revision   uint64
	}
)

// TestInterruptedStart checks that a signal while the command starts is
// reported as an interruption, and not as an error of a context.
func TestInterruptedStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for args, says := range map[string]string{
		"dev --listen 127.0.0.1:0 --shards 1 --data " + t.TempDir(): "hostd: interrupted before the nodes were ready\nThe nodes' data is kept",
		"demo --source ../..":                     "hostd: interrupted\n",
		"entity get counter a --addr 127.0.0.1:1": "hostd: ",
	} {
		var out, talk lockedBuffer
		code := run(ctx, strings.Fields(args), cli.Stdio{In: strings.NewReader(""), Out: &out, Err: &talk})
		if code != cli.ExitFailed || !strings.Contains(talk.String(), says) || strings.Contains(talk.String(), "context canceled") {
			t.Errorf("hostd %s: exit code %d\n%s", args, code, talk.String())
		}
	}
}
