// Package upgrade runs clusters with nodes of the previous release and of this
// release under load, while nodes are upgraded, downgraded and upgraded again,
// and the cluster version is raised. It contains only tests.
package upgrade

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/workload"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// release is an earlier release, at a commit of this repository.
type release struct {
	commit  string
	version sharding.ClusterVersion // at which it bootstraps clusters
	cannot  string                  // how the refusal to finalize describes its nodes
	refuses string                  // how it names the version of a directory that it does not open
}

var (
	//go:embed previous.txt
	previousCommit string
	//go:embed first.txt
	firstCommit string

	// previous supports cluster versions 1 and 2.
	previous = release{previousCommit, sharding.Version2, "supports cluster versions 1 to 2 but not version 3", "level %d"}
	// first supports cluster version 1 only. Its nodes have one listener.
	first = release{firstCommit, sharding.Version1, "supports cluster version 1 but not version 3", "format %d"}
)

// program returns the release's program, or skips the test if the checkout does
// not have its commit.
func (r release) program(t *testing.T) string {
	t.Helper()
	path, err := testkit.Release(strings.TrimSpace(r.commit))
	if errors.Is(err, testkit.ErrNoCommit) {
		t.Skipf("the earlier release cannot be built: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var both = flag.Bool("both", false, "upgrade in both orders, not only from the coordinator on, and from the first release too")

const (
	nodes, shards = 3, 6
	// verdictTime limits the time for checking the history of one entity.
	verdictTime = time.Minute
	// rest is the pause before each call, because everything acknowledged has
	// to be checked.
	rest = 20 * time.Millisecond
)

// world is a cluster under load whose nodes run one of two releases.
type world struct {
	*testkit.Cluster
	t        *testing.T
	from     release
	old, new string // paths of the programs
	h        *history.History
	load     *workload.Load
	c        *client.Client
	settings int // number of settings written
}

func begin(t *testing.T, from release) *world {
	t.Helper()
	old := from.program(t)
	w := &world{
		Cluster: testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: shards, Program: old, OneListener: from == first}),
		t:       t, from: from, old: old, new: testkit.Program(t), h: history.New(),
	}
	w.Push(workload.Types...)
	w.c = w.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 100 * time.Millisecond})
	w.load = workload.Start(workload.Options{
		Client: w.c, History: w.h, Seed: rand.Uint64(), Callers: 8, Streams: 2, Patience: testkit.Patience, Pause: rest,
	})
	t.Cleanup(func() {
		if t.Failed() {
			w.load.Abandon()
		}
	})
	w.goesOn()
	return w
}

// goesOn waits until the load has received answers, all of them correct and
// none a failure. It then changes the metadata and transfers leaderships.
func (w *world) goesOn() {
	w.t.Helper()
	target := w.load.Acknowledged() + 100
	w.Await("the load goes on", func() bool { return w.load.Acknowledged() >= target || w.load.Fault() != nil })
	if err := w.load.Fault(); err != nil {
		w.t.Fatalf("a caller was told: %v", err)
	}
	if n := w.load.Failed(); n > 0 {
		for _, e := range w.h.Entities() {
			for _, a := range w.h.Attempts(e) {
				if a.Outcome == history.Failed {
					w.t.Logf("%s of %v failed: %s", a.Name, a.Entity, a.Code)
				}
			}
		}
		w.t.Fatalf("%d calls failed", n)
	}
	w.settings++
	for i := range nodes { // through nodes of both releases
		c := w.Node(i).Client(client.Options{Timeout: testkit.Patience})
		if _, err := c.PutSetting(w.t.Context(), fmt.Sprintf("test.n%d", i+1), fmt.Sprint(w.settings)); err != nil {
			w.t.Fatalf("put a setting by n%d: %v", i+1, err)
		}
	}
	shard := 1 + w.settings%shards
	to := w.Node((w.Leader(uint32(shard)) + 1) % nodes).ID()
	if err := w.c.MoveShard(w.t.Context(), uint32(shard), to); err != nil {
		w.t.Fatalf("move shard %d to %s: %v", shard, to, err)
	}
}

// change stops a node gracefully and starts it with a program.
func (w *world) change(i int, program string) {
	w.t.Helper()
	w.Stop(i)
	w.Node(i).Use(program)
	w.Node(i).Start()
	w.AwaitSpread()
	w.goesOn()
}

// order lists the nodes with the coordinator's node first or last.
func (w *world) order(coordinatorFirst bool) []int {
	w.t.Helper()
	leads := -1
	w.Await("the cluster has a coordinator", func() bool {
		name := w.Overview(0).GetCoordinator()
		if name != "" {
			leads = w.Place(name)
		}
		return leads >= 0
	})
	out := []int{leads, (leads + 1) % nodes, (leads + 2) % nodes}
	if !coordinatorFirst {
		slices.Reverse(out)
	}
	return out
}

// TestUpgrade upgrades clusters of earlier releases and raises their cluster
// version. Until then every node can be downgraded. No call may fail, and every
// acknowledged command must be in the journal exactly once.
func TestUpgrade(t *testing.T) {
	testkit.Long(t, "upgrade")
	for _, tt := range []struct {
		name        string
		from        release
		coordinator bool // the coordinator's node is upgraded first, not last
		both        bool // only with -both
	}{
		{"coordinator first", previous, true, false},
		{"coordinator last", previous, false, true},
		{"from the first release", first, true, true},
	} {
		if tt.both && !*both {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			w := begin(t, tt.from)
			order := w.order(tt.coordinator)
			w.change(order[0], w.new)
			w.refusesToRaise(order[0], w.Node(order[1]).ID())
			w.change(order[1], w.new)
			w.change(order[0], w.old) // a downgrade while the releases are mixed
			w.change(order[0], w.new)
			w.change(order[2], w.new)
			w.change(order[1], w.old) // a downgrade when no node of the earlier release is left
			w.change(order[1], w.new)
			if tt.from == first {
				w.servesNodes(http.StatusOK)
			}
			w.raise(order[2])
			w.goesOn()
			w.servesNodes(http.StatusNotFound)
			w.neverBack(order[0])
			w.end()
		})
	}
}

// refusesToRaise asks an upgraded node to raise the cluster version while
// another node is not upgraded.
func (w *world) refusesToRaise(node int, inTheWay string) {
	w.t.Helper()
	c := w.Node(node).Client(client.Options{Timeout: testkit.Patience})
	said, err := c.FinalizeUpgrade(w.t.Context(), 0, true)
	if err != nil || said.GetClusterVersion() != uint32(w.from.version) || len(said.GetNodes()) != nodes {
		w.t.Fatalf("what the members speak: %v, %v", said, err)
	}
	for _, n := range said.GetNodes() {
		if upgraded := w.Place(n.GetNodeId()) == node; upgraded != (n.GetObstacle() == "") || upgraded != (n.GetMaxClusterVersion() == uint32(sharding.MaxVersion)) {
			w.t.Errorf("of %s: %v", n.GetNodeId(), n)
		}
	}
	if _, err := c.FinalizeUpgrade(w.t.Context(), 0, false); err == nil || !strings.Contains(err.Error(), w.from.cannot) {
		w.t.Fatalf("raised while %s runs the release before: %v", inTheWay, err)
	}
	if level := w.Overview(node).GetClusterVersion(); level != uint32(w.from.version) {
		w.t.Fatalf("the cluster is at level %d", level)
	}
}

func (w *world) raise(node int) {
	w.t.Helper()
	raiseLevel(w.t, w.Node(node))
	w.Await("every node knows of the level", func() bool {
		for i := range nodes {
			if w.Overview(i).GetClusterVersion() != uint32(sharding.MaxVersion) {
				return false
			}
		}
		return true
	})
}

// raiseLevel raises the cluster version through a node. A member that answers
// slowly may be an obstacle for a moment, but nothing else.
func raiseLevel(t *testing.T, by *testkit.Node) {
	t.Helper()
	c := by.Client(client.Options{Timeout: testkit.Patience})
	by.Until("the level is raised", func() error {
		said, err := c.FinalizeUpgrade(t.Context(), 0, false)
		if err == nil && said.GetClusterVersion() != uint32(sharding.MaxVersion) {
			t.Fatalf("raised to level %d", said.GetClusterVersion())
		}
		return err
	})
}

// servesNodes checks that every node serves other nodes on the listener for
// nodes, and answers them with the given status on the listener for clients. A
// node serves other nodes there below cluster version 2.
func (w *world) servesNodes(byClients int) {
	w.t.Helper()
	for i := range nodes {
		n := w.Node(i)
		for url, want := range map[string]int{n.API(): byClients, n.PeerAPI(): http.StatusOK} {
			r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, url+peerv1connect.PeerServiceProbeProcedure, strings.NewReader("{}"))
			if err != nil {
				w.t.Fatal(err)
			}
			r.Header = http.Header{"Content-Type": {"application/json"}, "Hostd-Format": {"1"}, "Hostd-Node": {"test"}, "Hostd-Incarnation": {"1"}}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				w.t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != want {
				w.t.Errorf("%s at %s answers a node with %d, not %d", n.ID(), url, res.StatusCode, want)
			}
		}
	}
}

// neverBack starts a node with the earlier release, which must refuse to open
// the directory, and then with the current release again.
func (w *world) neverBack(node int) {
	w.t.Helper()
	w.Stop(node)
	w.Node(node).Use(w.old)
	if err := w.Node(node).TryStart(); err == nil || !strings.Contains(w.Node(node).Log(), fmt.Sprintf(w.from.refuses, sharding.MaxVersion)) {
		w.t.Fatalf("the release before opened a directory of a level that it does not speak: %v\n%s", err, w.Node(node).Log())
	}
	w.Node(node).Use(w.new)
	w.Node(node).Start()
	w.AwaitSpread()
	w.goesOn()
}

// end checks all answers, and that all replicas of the metadata are equal.
func (w *world) end() {
	w.t.Helper()
	if err := w.load.Stop(); err != nil {
		w.t.Fatalf("a caller was told: %v", err)
	}
	if n := w.load.Failed(); n > 0 {
		w.t.Errorf("%d calls failed", n)
	}
	events, err := workload.ReadBack(w.t.Context(), w.c, w.h)
	if err != nil {
		w.t.Fatal(err)
	}
	checked, err := w.h.Linearizable(verdictTime, "account", "chain")
	if err != nil {
		w.t.Error(err)
	}
	settings := make([]string, nodes)
	w.Await("all nodes have the same settings", func() bool {
		for i := range nodes {
			list, _, err := w.Node(i).Client(client.Options{}).Settings(w.t.Context(), "test.")
			if err != nil {
				w.t.Fatal(err)
			}
			settings[i] = fmt.Sprint(list)
		}
		return settings[0] == settings[1] && settings[1] == settings[2]
	})
	w.StopAll()
	for i := range nodes {
		w.Node(i).MustVerify()
	}
	w.t.Logf("%d calls answered, %d events each once, %d entities checked", w.load.Acknowledged(), events, checked)
}
