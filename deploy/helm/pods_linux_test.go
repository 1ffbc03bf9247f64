package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
)

// workers is the number of callers of a load; each has an entity of its own.
const workers = 8

// load sends commands with the Go client until it is stopped. Each command adds
// one to a counter.
type load struct {
	t      *testing.T
	client *client.Client
	stop   context.CancelFunc
	tasks  sync.WaitGroup
	mu     sync.Mutex
	sent   map[string]int64 // number of acknowledged commands by entity
	failed []error
}

// startLoad uploads the module if the cluster does not have it, and starts the
// load.
func startLoad(t *testing.T, module string, options client.Options, addresses ...string) *load {
	t.Helper()
	options.Timeout = time.Minute // a slow machine must not make commands fail
	c, err := client.New(addresses, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	wasm, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Upload(t.Context(), wasm, true); err != nil {
		t.Fatalf("upload: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &load{t: t, client: c, stop: stop, sent: map[string]int64{}}
	for i := range workers {
		l.tasks.Go(func() {
			id := fmt.Sprintf("e%d", i)
			for n := 0; ctx.Err() == nil; n++ {
				l.send(fmt.Sprintf("%s-%d", id, n%16))
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) send(id string) {
	_, err := l.client.Send(context.Background(), client.Command{EntityType: "counter", EntityID: id, Name: "add", Data: []byte(`{"amount":1}`)})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if len(l.failed) < 10 {
			l.failed = append(l.failed, err)
		}
		return
	}
	l.sent[id]++
}

func (l *load) end() {
	l.stop()
	l.tasks.Wait()
}

// noneFailed checks that no command has failed so far, and that commands are
// acknowledged.
func (l *load) noneFailed(during string) {
	l.t.Helper()
	total := func() (sum int64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, n := range l.sent {
			sum += n
		}
		return sum
	}
	for before, deadline := total(), time.Now().Add(patience); total() < before+100 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range l.failed {
		l.t.Errorf("%s: a command failed: %v", during, err)
	}
	l.failed = nil
	l.t.Logf("%s: %d commands so far", during, func() (sum int64) {
		for _, n := range l.sent {
			sum += n
		}
		return sum
	}())
}

// check ends the load, and compares the entities with the acknowledged
// commands.
func (l *load) check() {
	l.t.Helper()
	l.end()
	for _, id := range slices.Sorted(maps.Keys(l.sent)) {
		answer, err := l.client.Query(l.t.Context(), client.Query{EntityType: "counter", EntityID: id, Name: "total"})
		if err != nil {
			l.t.Errorf("%s: %v", id, err)
			continue
		}
		var state struct{ Total int64 }
		if err := json.Unmarshal(answer.Data, &state); err != nil || state.Total != l.sent[id] {
			l.t.Errorf("%s: total %s after %d acknowledged commands, %v", id, answer.Data, l.sent[id], err)
		}
	}
}

// counterModule builds the module of the load.
func counterModule(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "counter.wasm")
	if err := goBuild(file, "./examples/wasm/counter", "GOOS=wasip1", "GOARCH=wasm"); err != nil {
		t.Fatal(err)
	}
	return file
}

// member is a node in the output of node ls.
type member struct {
	NodeID   string `json:"nodeId"`
	Zone     string `json:"zone"`
	Leads    uint32 `json:"leaderCount"`
	Draining bool   `json:"draining"`
}

// members asks a pod for the nodes.
func (p *pod) members() map[string]member {
	p.world.t.Helper()
	var list struct{ Members []member }
	// If shards have too few replicas, a remark follows the output.
	if err := json.NewDecoder(strings.NewReader(p.exec("hostd", "node", "ls", "-o", "json"))).Decode(&list); err != nil {
		p.world.t.Fatal(err)
	}
	out := map[string]member{}
	for _, m := range list.Members {
		out[m.NodeID] = m
	}
	return out
}

// clusterOf returns the cluster of a pod's volume.
func (s *statefulSet) clusterOf(ordinal int) string {
	text, err := os.ReadFile(filepath.Join(s.data(ordinal), "data", "node.json"))
	if err != nil {
		return ""
	}
	var id struct {
		Cluster string `json:"clusterId"`
	}
	if err := json.Unmarshal(text, &id); err != nil {
		s.t.Error(err)
	}
	return id.Cluster
}

// TestPods runs the chart's pods through the life of a cluster, under load.
func TestPods(t *testing.T) {
	if !inside(t) {
		return
	}
	s := newStatefulSet(t)
	s.follow("Install on Kubernetes")
	first := s.clusterOf(0)
	for i, p := range s.pods {
		if got := s.clusterOf(i); got != first || got == "" {
			t.Errorf("%s belongs to cluster %q, %s to %q", p.name, got, s.pods[0].name, first)
		}
		if m := s.pods[0].members()[p.name]; m.Zone != fmt.Sprintf("zone-%d", i) {
			t.Errorf("%+v", m)
		}
	}
	l := startLoad(t, counterModule(t), client.Options{}, "http://"+service+":7070")
	l.noneFailed("start")
	s.follow("Upgrade on Kubernetes")
	l.noneFailed("rolling restart")

	// The volume of the first node is lost too. Its configuration still says that
	// it bootstraps.
	s.follow("Replace a lost volume")
	s.do("kubectl delete pvc data-hostd-0 --wait=false")
	s.do("kubectl delete pod hostd-0")
	l.noneFailed("lost volumes")
	if got := s.clusterOf(0); got != first {
		t.Errorf("with a new volume the node belongs to cluster %q instead of %q", got, first)
	}

	// An operator drains a node, then its pod comes back on another machine.
	s.pods[1].exec("hostd", "node", "drain")
	if m := s.pods[0].members()[s.pods[1].name]; m.Leads != 0 || !m.Draining {
		t.Errorf("after the drain: %+v", m)
	}
	s.follow("Drain a machine")
	s.until("the drained node leads again", func() bool {
		m := s.pods[0].members()[s.pods[1].name]
		return m.Leads > 0 && !m.Draining
	})
	l.noneFailed("drained node")

	s.follow("Scale on Kubernetes")
	l.noneFailed("five nodes, and three again")
	if got := s.pods[0].members(); len(got) != 3 {
		t.Errorf("members %v", got)
	}
	l.check()
	if n := s.ended.Load(); n != 0 {
		t.Errorf("%d containers ended by themselves", n)
	}
	if *full {
		s.follow("Uninstall on Kubernetes")
	}
}

// TestPodsWithOwnCertificates starts pods with TLS and the certificates that the
// page creates.
func TestPodsWithOwnCertificates(t *testing.T) {
	if !inside(t) {
		return
	}
	s := newStatefulSet(t)
	s.follow("TLS on Kubernetes")
	s.roll()
	if n := s.ended.Load(); n != 0 {
		t.Errorf("%d containers ended by themselves", n)
	}
}

// TestFirstPodWithoutVolumeWaits starts the first pod with an empty volume
// while the other pods are away: it must not bootstrap a second cluster.
func TestFirstPodWithoutVolumeWaits(t *testing.T) {
	if !*full && os.Getenv(insideVariable) == "" {
		t.Skip("only in full: make pods")
	}
	if !inside(t) {
		return
	}
	s := newStatefulSet(t)
	s.follow("Install on Kubernetes")
	first := s.clusterOf(0)
	l := startLoad(t, counterModule(t), client.Options{}, "http://"+service+":7070")
	l.noneFailed("start")
	l.end()
	var stops sync.WaitGroup
	for _, p := range s.pods {
		stops.Go(p.kill)
	}
	stops.Wait()
	s.wipe(0)
	s.pods[0] = s.startPod(0)
	s.until("the node serves its health", func() bool {
		return s.pods[0].ask(t.Context(), s.pods[0].liveness)
	})
	// The node asks its seeds several times during this time.
	time.Sleep(10 * time.Second)
	if got := s.clusterOf(0); got != "" || s.pods[0].ready.Load() {
		t.Fatalf("without the others it belongs to cluster %q", got)
	}
	s.pods[1], s.pods[2] = s.startPod(1), s.startPod(2)
	s.awaitReady(s.pods...)
	if got := s.clusterOf(0); got != first {
		t.Errorf("cluster %q instead of %q", got, first)
	}
	l.check()
}
