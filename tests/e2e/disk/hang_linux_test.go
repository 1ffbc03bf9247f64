// The tests in this file give nodes of a cluster disks that hang, fail or are
// slow, and check what callers see. They manipulate system calls with strace,
// which needs root.

package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/workload"
)

const shards = 8

// world is a cluster of three nodes with an entity in every shard.
type world struct {
	*testkit.Cluster
	t        *testing.T
	entities []string // entity of each shard, starting with shard 1
	sent     int      // number of commands sent to each entity
}

func start(t *testing.T, flags ...string) *world {
	t.Helper()
	testkit.NeedStrace(t)
	w := &world{t: t, Cluster: testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: shards, Flags: flags})}
	w.Push("counter")
	w.AwaitSpread()
	for shard := uint32(1); shard <= shards; shard++ {
		for n := 0; ; n++ {
			if id := fmt.Sprintf("e%d", n); client.ShardOf("counter", id, shards) == shard {
				w.entities = append(w.entities, id)
				break
			}
		}
	}
	w.everyShardAnswers()
	return w
}

// patient returns a client that knows all nodes except one.
func (w *world) patient(but int) *client.Client {
	w.t.Helper()
	var to []string
	for i, n := range w.Nodes() {
		if i != but {
			to = append(to, n.API())
		}
	}
	c, err := client.New(to, client.Options{Timeout: testkit.Patience, MaxBackoff: 50 * time.Millisecond, GivenOnly: but >= 0})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// everyShardAnswers sends a command to every shard and returns the time until
// the last command is answered.
func (w *world) everyShardAnswers(but ...int) time.Duration {
	w.t.Helper()
	c := w.patient(append(but, -1)[0])
	began := time.Now()
	errs := make(chan error)
	w.sent++
	for _, id := range w.entities {
		go func() {
			r, err := c.Send(w.t.Context(), client.Command{EntityType: "counter", EntityID: id, Name: "add", Data: []byte(`{"amount":1}`)})
			if want := fmt.Sprintf(`{"total":%d}`, w.sent); err == nil && string(r.Data) != want {
				err = fmt.Errorf("%s answers %s, wanted %s", id, r.Data, want)
			}
			errs <- err
		}()
	}
	for range w.entities {
		if err := <-errs; err != nil {
			w.t.Error(err)
		}
	}
	return time.Since(began)
}

// asleep waits until every raft group of every node is asleep.
func (w *world) asleep() {
	w.t.Helper()
	for i, n := range w.Nodes() {
		w.Await(fmt.Sprintf("the groups of %s sleep", n.ID()), func() bool {
			return strings.Contains(w.get(i, "/metrics"), "\nhostd_raft_groups_awake 0\n")
		})
	}
}

// get returns a node's response, prefixed with its status code unless that is
// 200. It returns "" if the node does not answer.
func (w *world) get(i int, path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Node(i).API()+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK {
		return fmt.Sprintf("%d %s", res.StatusCode, body)
	}
	return string(body)
}

// leader returns the index of the node that leads shard 1.
func (w *world) leader() int {
	w.t.Helper()
	at := -1
	w.Await("shard 1 is led", func() bool { at = w.Leader(1); return at >= 0 })
	return at
}

// leads returns how many shards a node leads according to another node,
// including the metadata shard.
func (w *world) leads(node, seenBy int) int {
	n := 0
	for _, s := range w.Shards(seenBy) {
		if s.GetLeader() == w.Node(node).ID() {
			n++
		}
	}
	return n
}

func other(i int) int { return (i + 1) % 3 }

// TestSyncHangsUnderSleepingShards makes fdatasync hang on the node that leads
// sleeping shards. Other nodes must serve all of these shards, and the process
// must end.
func TestSyncHangsUnderSleepingShards(t *testing.T) {
	testkit.Long(t, "long")
	w := start(t)
	w.asleep()
	old := w.leader()
	node := w.Node(old)
	end := node.InjectSyncs("delay_enter=600000000")
	began := time.Now()
	longest := w.everyShardAnswers()
	w.Await("it leads nothing", func() bool { return w.leads(old, other(old)) == 0 })
	t.Logf("all shards are led elsewhere after %v; the longest command took %v", time.Since(began), longest)
	t.Logf("/readyz of the node: %s", w.get(old, "/readyz"))
	w.Await("its port is closed", func() bool { return w.get(old, "/livez") == "" })
	t.Logf("its port was closed %v after the fault", time.Since(began))
	end() // until then, a thread that hangs in the kernel keeps the process alive
	w.Await("the process ends", func() bool { return !node.Running() })
	if code := node.ExitCode(); code != 1 || !strings.Contains(node.Log(), "the disk of the write-ahead log does not answer") {
		t.Errorf("it ended with %d", code)
	}
	node.Start()
	w.AwaitSpread()
	w.everyShardAnswers()
	w.settled()
}

// An operator marks a node with a hanging disk as down. The command must
// return, and other nodes must lead the shards. When the disk answers again,
// the node must have lost nothing that it acknowledged, and must return no
// stale answer.
func TestDownOfNodeWithHangingDisk(t *testing.T) {
	testkit.Long(t, "long")
	w := start(t, "--disk-stall-after", "1h")
	w.asleep()
	old := w.leader()
	node := w.Node(old)
	end := node.InjectSyncs("delay_enter=600000000")
	began := time.Now()
	if err := w.patient(old).Down(t.Context(), node.ID()); err != nil {
		t.Fatal(err)
	}
	t.Logf("it was down after %v", time.Since(began))
	t.Logf("the longest command took %v", w.everyShardAnswers())
	w.Await("it leads nothing", func() bool { return w.leads(old, other(old)) == 0 })
	if ready := w.get(old, "/readyz"); !strings.HasPrefix(ready, "503 ") {
		t.Errorf("it is ready: %s", ready)
	}
	end()
	w.everyShardAnswers()
	node.Kill()
	w.everyShardAnswers(old)
}

// A failed fdatasync ends the process at once. Other nodes take over its
// shards.
func TestSyncFails(t *testing.T) {
	testkit.Long(t, "long")
	w := start(t)
	old := w.leader()
	node := w.Node(old)
	node.InjectSyncs("error=EIO")
	t.Logf("the longest command took %v", w.everyShardAnswers())
	w.Await("the process ends", func() bool { return !node.Running() })
	if code := node.ExitCode(); code != 1 || !strings.Contains(node.Log(), "input/output error") {
		t.Errorf("it ended with %d", code)
	}
	node.Start()
	w.AwaitSpread()
	w.settled()
}

// A process that is stopped by a signal for longer than the limit for hanging
// disks continues when it is resumed.
func TestStoppedProcessIsNotAHangingDisk(t *testing.T) {
	testkit.Long(t, "long")
	w := start(t, "--disk-stall-after", "3s")
	old := w.leader()
	node := w.Node(old)
	load := workload.Start(workload.Options{Client: w.patient(-1), History: history.New(), Types: []string{"counter"}, Pause: 10 * time.Millisecond, Callers: 4, Streams: 1, Prefix: "stopped-"})
	w.Pause(old)
	began := time.Now()
	t.Logf("the longest command took %v", w.everyShardAnswers())
	w.Await("it has been stopped for longer than a disk may hang", func() bool { return time.Since(began) > 6*time.Second })
	w.Continue(old)
	w.Await("it is ready", func() bool { return w.get(old, "/readyz") == "ok\n" })
	if err := load.Stop(); err != nil {
		t.Error(err)
	}
	w.everyShardAnswers()
	if !node.Running() || strings.Contains(node.Log(), "does not answer") {
		t.Error("the time in which it was stopped was taken for a fault of its disk")
	}
}

// Every fdatasync of one node takes 200 ms. Under load, the node loses its
// leaderships and gets none back while its disk is slow. Some time after its
// disk is fast again, it gets some of them back.
func TestSlowDiskGivesLeadershipsAway(t *testing.T) {
	testkit.Long(t, "long")
	w := start(t)
	old := w.leader()
	h := history.New()
	load := workload.Start(workload.Options{Client: w.patient(-1), History: h, Types: []string{"counter"}, Pause: 10 * time.Millisecond, Callers: 4, Streams: 1, Prefix: "slow-"})
	end := w.Node(old).InjectSyncs("delay_enter=200000")
	began := time.Now()
	t.Logf("the longest command took %v", w.everyShardAnswers())
	w.Await("it leads nothing", func() bool { return w.leads(old, other(old)) == 0 })
	t.Logf("it led nothing after %v; the longest command took %v then", time.Since(began), w.everyShardAnswers())
	asked := w.Node(other(old))
	shown := func() (line string) {
		out, _ := asked.Run("node", "ls", "--addr", asked.API())
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, w.Node(old).ID()+" ") {
				return line
			}
		}
		return out
	}
	asked.Until("it is shown to be slow", func() error {
		if line := shown(); !strings.Contains(line, " up,slow ") || strings.HasSuffix(strings.TrimSpace(line), "-") {
			return errors.New(line)
		}
		return nil
	})
	end()
	began = time.Now()
	w.Await("it leads again", func() bool { return w.leads(old, other(old)) > 0 })
	t.Logf("it led again %v after its disk was quick", time.Since(began))
	asked.Until("it is not shown to be slow any more", func() error {
		if line := shown(); strings.Contains(line, "slow") {
			return errors.New(line)
		}
		return nil
	})
	if err := load.Stop(); err != nil {
		t.Error(err)
	}
	w.everyShardAnswers()
	w.settled()
}

// settled stops the cluster and verifies the data of its nodes.
func (w *world) settled() {
	w.t.Helper()
	w.StopAll()
	for _, n := range w.Nodes() {
		n.MustVerify()
	}
}
