package peertls

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/workload"
)

// world is three nodes under load.
type world struct {
	*testkit.Cluster
	t     *testing.T
	files []nodeFiles
	flags [][]string // flags of each node, except those for TLS
	load  *workload.Load
}

func newWorld(t *testing.T, of authority) *world {
	t.Helper()
	w := &world{t: t, Cluster: testkit.NewCluster(t, 3, testkit.ClusterOptions{})}
	for _, n := range w.Nodes() {
		w.files = append(w.files, newFiles(of, n.ID()))
		w.flags = append(w.flags, n.Flags())
	}
	return w
}

// mode sets the TLS mode of a node's next process.
func (w *world) mode(i int, mode string) {
	w.Node(i).SetFlags(append(w.flags[i][:len(w.flags[i]):len(w.flags[i])], w.files[i].flags(mode)...)...)
}

// change restarts a node in a different TLS mode.
func (w *world) change(i int, mode string) {
	w.t.Helper()
	w.Stop(i)
	w.mode(i, mode)
	w.Node(i).Start()
	w.AwaitSpread()
}

// begin starts the load.
func (w *world) begin(types ...string) {
	w.t.Helper()
	w.Push(types...)
	w.load = workload.Start(workload.Options{
		Client:  w.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 100 * time.Millisecond}),
		History: history.New(), Seed: rand.Uint64(), Callers: 4, Streams: 2, Patience: testkit.Patience, Pause: 20 * time.Millisecond, Types: types,
	})
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.load.Abandon()
		}
	})
}

// goesOn waits until the load has received answers, none of them a failure.
func (w *world) goesOn(when string) {
	w.t.Helper()
	target := w.load.Acknowledged() + 100
	w.Await("the load goes on "+when, func() bool { return w.load.Acknowledged() >= target || w.load.Fault() != nil })
	if err := w.load.Fault(); err != nil {
		w.t.Fatalf("%s a caller was told: %v", when, err)
	}
	if n := w.load.Failed(); n > 0 {
		w.t.Fatalf("%s %d calls failed", when, n)
	}
}

// end ends the load and checks that no call failed.
func (w *world) end() {
	w.t.Helper()
	if err := w.load.Stop(); err != nil {
		w.t.Fatal(err)
	}
	if n := w.load.Failed(); n > 0 {
		w.t.Errorf("%d calls failed", n)
	}
}

// reload sends SIGHUP to every node, and waits until the condition holds for
// each of them.
func (w *world) reload(what string, condition func(i int) bool) {
	w.t.Helper()
	for i := range w.Nodes() {
		w.Node(i).Signal(syscall.SIGHUP)
		w.Await(what, func() bool { return condition(i) })
	}
}

// takes reports whether a node accepts a caller with a certificate from an
// authority.
func (w *world) takes(i int, of, nodes authority) bool {
	config := as(of.pair(request("n9")), nodes)
	config.ServerName = w.Node(i).ID() + ".example"
	_, err := callAs(w.t, config, w.Node(i).PeerAPI(), probe, "n9", "")
	return err == nil
}

// A cluster whose nodes require TLS of each other from the start is
// bootstrapped and serves.
func TestClusterOverTLS(t *testing.T) {
	own := newAuthority(t)
	w := newWorld(t, own)
	for i := range w.Nodes() {
		w.mode(i, "require")
	}
	w.Start()
	w.begin("counter")
	w.goesOn("over TLS")
	w.end()
	for _, n := range w.Nodes() {
		if counted(t, n, "tls") == "0" || counted(t, n, "plain") != "0" {
			t.Errorf("%s: %q", n.ID(), metrics(t, n, "hostd_peer_accepted_total"))
		}
	}
}

// A cluster changes from no TLS between its nodes to TLS only, one node at a
// time, and then to other certificates and another authority. No call may fail.
func TestTLSMigrationAndRotationUnderLoad(t *testing.T) {
	testkit.Long(t, "long")
	first, second := newAuthority(t), newAuthority(t)
	w := newWorld(t, first)
	w.Start()
	w.begin(workload.Types...)
	w.goesOn("without TLS")
	for i := range w.Nodes() {
		w.change(i, "allow")
		w.goesOn("while nodes begin to allow TLS")
	}
	for i := range w.Nodes() {
		w.change(i, "require")
		w.goesOn("while nodes begin to require TLS")
	}
	for i, n := range w.Nodes() {
		if _, err := callAs(t, nil, n.PeerAPI(), probe, "n9", ""); err == nil {
			t.Errorf("%s answers without TLS", n.ID())
		}
		n.Await("a node of its authority is taken", func() bool { return w.takes(i, first, first) })
		if w.takes(i, second, first) {
			t.Errorf("%s takes a node of another authority", n.ID())
		}
		if counted(t, n, "tls") == "0" || counted(t, n, "plain") != "0" {
			t.Errorf("%s: %q", n.ID(), metrics(t, n, "hostd_peer_accepted_total"))
		}
	}

	// All nodes get new key pairs from the same authority.
	w.renew(first, first)
	w.goesOn("with other pairs")

	// Change the authority: add the new authority to all bundles, issue new key
	// pairs, and remove the old authority.
	for _, f := range w.files {
		f.believe(first, second)
	}
	w.reload("both authorities are believed", func(i int) bool { return w.takes(i, second, first) })
	w.goesOn("with two authorities")
	w.renew(second, second)
	w.goesOn("with pairs of the other authority")
	for _, f := range w.files {
		f.believe(second)
	}
	removed := time.Now()
	w.reload("the first authority is believed no more", func(i int) bool { return !w.takes(i, first, second) })
	w.Await("the time of grace is over", func() bool { return time.Since(removed) > certs.Grace+10*time.Second })
	w.goesOn("with the other authority alone")
	w.end()
}

// renew gives every node a new key pair.
func (w *world) renew(of, nodes authority) {
	w.t.Helper()
	for _, f := range w.files {
		f.renew(of)
	}
	for i, f := range w.files {
		config := as(nodes.pair(request("n9")), nodes)
		config.InsecureSkipVerify = true // only the serial number of the certificate matters
		w.Await("another pair is shown", func() bool { return shown(w.t, w.Node(i), config) == f.serial() })
	}
}
