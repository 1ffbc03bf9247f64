package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/testkit"
)

// patience bounds every wait for a condition.
const patience = 2 * time.Minute

// program builds the program once and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "hostd-cluster-test-*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "hostd")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "github.com/hostd/hostd/cmd/hostd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// node is one node as a process, that can be killed and started again on the
// same data and address.
type node struct {
	t      *testing.T
	dir    string
	listen string
	cmd    *exec.Cmd
	ended  chan struct{}
	log    bytes.Buffer // of the present process; read after ended
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), listen: "127.0.0.1:0"}
	n.start()
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("the node's last log:\n%s", n.log.String())
		}
	})
	return n
}

// start returns once the node serves.
func (n *node) start() {
	n.t.Helper()
	path, err := program()
	if err != nil {
		n.t.Fatal(err)
	}
	ports := filepath.Join(n.t.TempDir(), "ports.json")
	n.log.Reset()
	n.cmd = exec.Command(path, "serve", "--data-dir", n.data(), "--listen", n.listen, "--shards", "4", "--admin", "full", "--max-deadline", "5m", "--ports-file", ports)
	n.cmd.Stderr = &n.log
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait() // how it ended is in its log
	}(n.cmd, n.ended)
	var p struct{ Nodes []struct{ API string } }
	n.await("the node starts", func() bool {
		text, err := os.ReadFile(ports)
		return err == nil && json.Unmarshal(text, &p) == nil && len(p.Nodes) == 1
	})
	n.listen = p.Nodes[0].API[len("http://"):]
	n.await("the node is ready", func() bool {
		res, err := http.Get(n.api() + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

func (n *node) data() string { return filepath.Join(n.dir, "data") }
func (n *node) api() string  { return "http://" + n.listen }

// await waits for a condition while the node lives.
func (n *node) await(what string, condition func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-n.ended:
			n.t.Fatalf("never: %s: the node ended\n%s", what, n.log.String())
		default:
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("never: %s", what)
		}
	}
}

// kill ends the node without giving it a moment, and waits for its end.
func (n *node) kill() {
	_ = n.cmd.Process.Kill() // it may have ended
	<-n.ended
}

// stop asks the node to end and demands that it does so in order.
func (n *node) stop() {
	n.t.Helper()
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		n.t.Fatal(err)
	}
	select {
	case <-n.ended:
	case <-time.After(patience):
		n.t.Fatal("the node does not stop")
	}
	if code := n.cmd.ProcessState.ExitCode(); code != 0 {
		n.t.Fatalf("the node stopped with exit code %d:\n%s", code, n.log.String())
	}
}

// client makes a client that is as patient as the tests.
func (n *node) client() *client.Client {
	n.t.Helper()
	c, err := client.New([]string{n.api()}, client.Options{Timeout: patience})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	return c
}

// push uploads an example module and activates it.
func (n *node) push(ctx context.Context, c *client.Client, example string) {
	n.t.Helper()
	if _, err := c.Upload(ctx, testkit.BuildExample(n.t, example), true); err != nil {
		n.t.Fatalf("upload %s: %v", example, err)
	}
}

// verify runs the offline check over the stopped node's data.
func (n *node) verify() {
	n.t.Helper()
	path, err := program()
	if err != nil {
		n.t.Fatal(err)
	}
	if out, err := exec.Command(path, "verify", n.data()).CombinedOutput(); err != nil {
		n.t.Errorf("verify: %v\n%s", err, out)
	}
}
