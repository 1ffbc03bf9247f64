package clienttls

import (
	"crypto/tls"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/workload"
)

func request(name string) certs.Request { return certs.Request{Name: name} }

// world is three nodes under load.
type world struct {
	*testkit.Cluster
	t     *testing.T
	files []nodeFiles
	loads []*workload.Load
}

// load starts a load with the TLS configuration of a client.
func (w *world) load(prefix string, config *tls.Config) *workload.Load {
	w.t.Helper()
	l := workload.Start(workload.Options{
		Client:  w.Client(client.Options{TLS: config, Timeout: testkit.Patience, MaxBackoff: 100 * time.Millisecond}),
		History: history.New(), Seed: rand.Uint64(), Callers: 4, Streams: 2, Patience: testkit.Patience, Pause: 20 * time.Millisecond, Prefix: prefix,
	})
	w.loads = append(w.loads, l)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			l.Abandon()
		}
	})
	return l
}

// goesOn waits until the loads have received answers, none of them a failure.
func (w *world) goesOn(when string, loads ...*workload.Load) {
	w.t.Helper()
	for _, l := range loads {
		target := l.Acknowledged() + 100
		w.Await("the load goes on "+when, func() bool { return l.Acknowledged() >= target || l.Fault() != nil })
		if err := l.Fault(); err != nil {
			w.t.Fatalf("%s a caller was told: %v", when, err)
		}
		if n := l.Failed(); n > 0 {
			w.t.Fatalf("%s %d calls failed", when, n)
		}
	}
}

// change restarts a node with different TLS flags.
func (w *world) change(i int, mode, auth string) {
	w.t.Helper()
	w.Stop(i)
	w.Node(i).SetFlags(append(w.Node(i).Flags()[:w.common(i)], w.files[i].flags(mode, auth)...)...)
	w.Node(i).Start()
	w.AwaitSpread()
}

// common returns the number of a node's flags that do not concern TLS.
func (w *world) common(i int) int {
	flags := w.Node(i).Flags()
	for at, f := range flags {
		if f == "--tls-mode" {
			return at
		}
	}
	return len(flags)
}

// A cluster changes from no TLS to TLS only, one node at a time, and then to
// other certificates and another authority. No call may fail.
func TestTLSMigrationAndRotationUnderLoad(t *testing.T) {
	testkit.Long(t, "long")
	first, second := newAuthority(t), newAuthority(t)
	shows := holding(first.client("bob"))
	both := trust(shows, first, second)
	w := &world{t: t, Cluster: testkit.NewCluster(t, 3, testkit.ClusterOptions{TLS: both})}
	for i := range w.Nodes() {
		f := newFiles(t, first, first)
		f.renew(first, w.Node(i).ID(), w.host(i))
		w.files = append(w.files, f)
	}
	w.Start()
	w.Push(workload.Types...)
	plain := w.load("plain-", nil)
	w.goesOn("without TLS", plain)
	for i := range w.Nodes() {
		w.change(i, "allow", "optional")
		w.goesOn("while nodes begin to allow TLS", plain)
	}
	over := w.load("tls-", both)
	w.goesOn("with and without TLS", plain, over)
	if err := plain.Stop(); err != nil {
		t.Fatal(err)
	}
	for i := range w.Nodes() {
		w.change(i, "require", "require")
		w.goesOn("while nodes begin to require TLS", over)
	}
	for _, n := range w.Nodes() {
		if err := call(t, n.Address(), nil); !contains(err, "https://") {
			t.Errorf("%s, without TLS: %v", n.ID(), err)
		}
	}

	// All nodes get new key pairs from the same authority.
	w.renew(first)
	w.goesOn("with other pairs", over)

	// Change the authority: add the new authority to all bundles, issue new key
	// pairs, and remove the old authority.
	for _, f := range w.files {
		f.believe(first, second)
	}
	w.reload("both authorities are believed", func(i int) bool {
		return callFor(t, refusedTime, w.Node(i).Address(), trust(holding(second.client("ann")), first)) == nil
	})
	w.goesOn("with two authorities", over)
	w.renew(second)
	shows.Store(second.client("bob"))
	w.goesOn("with pairs of the other authority", over)
	for _, f := range w.files {
		f.believe(second)
	}
	removed := time.Now()
	w.reload("the first authority is believed no more", func(i int) bool {
		return callFor(t, refusedTime, w.Node(i).Address(), trust(holding(first.client("ann")), second)) != nil
	})
	w.Await("the time of grace is over", func() bool { return time.Since(removed) > certs.Grace+10*time.Second })
	w.goesOn("with the other authority alone", over)
	if err := over.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, l := range w.loads {
		if n := l.Failed(); n > 0 {
			t.Errorf("%d calls failed", n)
		}
	}
}

func (w *world) host(i int) string { return hostOf(w.t, w.Node(i).Address()) }

// renew gives every node a new key pair.
func (w *world) renew(of authority) {
	w.t.Helper()
	for i, f := range w.files {
		f.renew(of, w.Node(i).ID(), w.host(i))
	}
	shows := &atomic.Pointer[tls.Certificate]{}
	shows.Store(of.client("ann"))
	for i := range w.files {
		w.Await("another pair is shown", func() bool {
			conn, err := tls.Dial("tcp", w.Node(i).Address(), trust(shows, of))
			if err != nil {
				return false
			}
			defer conn.Close()
			return conn.ConnectionState().PeerCertificates[0].SerialNumber.String() == serialOf(w.t, w.files[i])
		})
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
