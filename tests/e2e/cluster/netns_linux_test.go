package cluster

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// insideVar is an environment variable that is set in a test process in its own
// network namespace, in which it may cut links between nodes.
const insideVar = "HOSTD_TEST_INSIDE"

// insideTime bounds a test in a network namespace.
const insideTime = 30 * time.Minute

// inside runs the test again in a network namespace of its own, and reports
// whether this process is that run.
func inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideVar) != "" {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("set up the loopback network: %v: %s", err, out)
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a network namespace")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs the ip tool, to cut nodes from each other")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	limit := insideTime
	if end, ok := t.Deadline(); ok {
		limit = min(limit, time.Until(end)-10*time.Second)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v", fmt.Sprintf("-test.timeout=%s", limit),
		fmt.Sprintf("-seed=%d", *seed), fmt.Sprintf("-faults=%d", *faults), fmt.Sprintf("-chaos.faults=%d", *chaosFaults), fmt.Sprintf("-pause=%s", *pause), fmt.Sprintf("-test.short=%v", testing.Short()))
	cmd.Env = append(os.Environ(), insideVar+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 10 * time.Second
	out := &logLines{t: t}
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	out.flush()
	switch {
	case err != nil:
		t.Fatalf("in a network namespace: %v", err)
	case out.skipped:
		t.Skip("in a network namespace: skipped, see above")
	}
	return false
}

// logLines is a writer that logs complete lines immediately.
type logLines struct {
	t       *testing.T
	part    []byte
	skipped bool
}

func (l *logLines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		line, rest, whole := bytes.Cut(l.part, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.log(string(line))
		l.part = rest
	}
}

func (l *logLines) log(line string) {
	l.skipped = l.skipped || strings.HasPrefix(line, "--- SKIP")
	l.t.Log("inside: " + line)
}

func (l *logLines) flush() {
	if len(l.part) > 0 {
		l.log(string(l.part))
	}
}

// link is the direction from one node to another, by index.
type link struct{ from, to int }

// between returns the links between two nodes in both directions.
func between(a, b int) []link { return []link{{a, b}, {b, a}} }

// network cuts links in the loopback network. Packets over a cut link are
// dropped at the sender, so connections stay open and both ends get no error.
type network struct{ w *world }

func newNetwork(w *world) *network {
	w.t.Helper()
	n := &network{w}
	// By default, the kernel applies the rule for local addresses before all other
	// rules. It has to come after the rules of the cuts, because links between
	// local addresses could not be cut otherwise.
	n.ip("rule", "add", "pref", "1000", "lookup", "local")
	n.ip("rule", "del", "pref", "0")
	return n
}

func (n *network) ip(args ...string) {
	n.w.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.w.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (n *network) host(place int) string {
	u, err := url.Parse(n.w.Node(place).API())
	if err != nil {
		n.w.t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(u.Host)
	if err != nil {
		n.w.t.Fatal(err)
	}
	return host
}

// cut cuts links between nodes until heal is called. Test clients are not
// affected.
func (n *network) cut(links ...link) (heal func()) {
	n.w.t.Helper()
	for _, l := range links {
		n.ip("rule", "add", "pref", "10", "from", n.host(l.from), "to", n.host(l.to), "blackhole")
	}
	return func() {
		n.w.t.Helper()
		for _, l := range links {
			n.ip("rule", "del", "pref", "10", "from", n.host(l.from), "to", n.host(l.to), "blackhole")
		}
	}
}
