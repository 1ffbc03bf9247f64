// Package entities tests the lifecycle of entities on a complete node with a
// real guest: snapshots, timers and deletion, across stops and kills of the
// node.
package entities

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/tests/support/testkit"
)

// node is a node in the test's process that can be stopped and started again.
type node struct {
	t   *testing.T
	dir string
	n   *host.Node
	c   *client.Client

	shards int                // number of shards; 0 means 8
	module string             // module to upload
	checks int                // one in this many evictions is checked by a replay; the default if 0
	tell   bool               // return the texts of guest faults to callers
	log    *lines             // log of the node; nil if no test reads it
	seen   map[string]float64 // number of compared states by type
}

func newNode(t *testing.T) *node {
	n := &node{t: t, dir: t.TempDir(), module: "tests/e2e/entities/guest"}
	n.open()
	return n
}

// open starts the node for the first time, and uploads its module.
func (n *node) open() {
	n.t.Helper()
	testkit.ShareCache(n.t, n.dir)
	n.start()
	n.t.Cleanup(func() {
		if n.n != nil {
			n.stop()
		}
	})
	build := testkit.BuildGuest
	if filepath.Ext(n.module) != "" {
		build = testkit.BuildSource
	}
	if _, err := n.c.Upload(n.t.Context(), build(n.t, n.module), true); err != nil {
		n.t.Fatal(err)
	}
}

// metrics returns the node's metrics as text.
func (n *node) metrics() string {
	n.t.Helper()
	res, err := http.Get("http://" + n.n.Addr() + "/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

func (n *node) start() {
	n.t.Helper()
	cfg := config.Default()
	cfg.DataDir, cfg.Listen, cfg.Shards, cfg.Admin = n.dir, "127.0.0.1:0", uint32(cmp.Or(n.shards, 8)), config.AdminFull
	cfg.MinScheduleInterval, cfg.ExposeGuestErrors = 100*time.Millisecond, n.tell
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	var err error
	logger := slog.New(slog.DiscardHandler)
	if n.log != nil {
		logger = slog.New(slog.NewTextHandler(n.log, nil))
	}
	if n.n, err = host.StartIn(ctx, cfg, logger, host.Surroundings{Network: network.TCP{}, CheckStates: n.checks}); err != nil {
		n.t.Fatal(err)
	}
	for !n.n.Ready() {
		if ctx.Err() != nil {
			n.t.Fatal("the node never became ready")
		}
		time.Sleep(time.Millisecond)
	}
	if n.c, err = client.New([]string{n.n.Addr()}, client.Options{Timeout: testkit.Patience}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) stop() {
	n.t.Helper()
	n.c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if err := n.n.Stop(ctx); err != nil {
		n.t.Error(err)
	}
	n.n = nil
}

func (n *node) send(id, name string, payload any) client.Reply {
	n.t.Helper()
	data, err := json.Marshal(payload)
	if err != nil {
		n.t.Fatal(err)
	}
	r, err := n.c.Send(n.t.Context(), client.Command{EntityType: "alarm", EntityID: id, Name: name, Data: data})
	if err != nil {
		n.t.Fatalf("%s %s: %v", name, id, err)
	}
	return r
}

type state struct{ Total, Rung int64 }

func (n *node) state(id string) (s state, sequence uint64) {
	n.t.Helper()
	r, err := n.c.Query(n.t.Context(), client.Query{EntityType: "alarm", EntityID: id, Name: "state"})
	if err == nil {
		err = json.Unmarshal(r.Data, &s)
	}
	if err != nil {
		n.t.Fatalf("state of %s: %v", id, err)
	}
	return s, r.Sequence
}

type arm struct {
	Name    string `json:"name"`
	AfterMs int64  `json:"afterMs"`
	Times   int64  `json:"times"`
}

// TestTimersSurviveRestarts checks that timers set before a stop, due before and
// after the next start, take effect exactly once, and that cancelled, replaced
// and rejected timers have no effect.
func TestTimersSurviveRestarts(t *testing.T) {
	n := newNode(t)
	const entities = 40
	const want = 1 + 5 + 1
	var most [entities]int64 // the most additions that are possible: on a slow machine, a timer may fire before the test has cancelled it
	for i := range entities {
		id := fmt.Sprintf("e%d", i)
		n.send(id, "arm", arm{"once", int64(i * 20), 1})
		n.send(id, "arm", arm{"again", 30, 5})
		n.send(id, "arm", arm{"refused", 200, -1})
		const soon = 2 * time.Second
		armed := time.Now()
		n.send(id, "arm", arm{"cancelled", soon.Milliseconds(), 1})
		n.send(id, "arm", arm{"replaced", soon.Milliseconds(), 1})
		n.send(id, "arm", arm{"replaced", 300, 1})
		n.send(id, "disarm", map[string]string{"name": "cancelled"})
		if most[i] = want; time.Since(armed) >= soon {
			most[i] += 2
		}
	}
	for range 2 {
		n.stop()
		n.start()
	}
	for i := range entities {
		id := fmt.Sprintf("e%d", i)
		for end := time.Now().Add(testkit.Patience); ; time.Sleep(5 * time.Millisecond) {
			s, sequence := n.state(id)
			if s.Rung > most[i] || sequence != uint64(s.Rung) || time.Now().After(end) {
				t.Fatalf("%s rang %d times in %d events, want %d", id, s.Rung, sequence, want)
			}
			if s.Rung >= want && n.timers(id) == 0 {
				break
			}
		}
	}
	n.stop() // no timer is left
	n.start()
	for i := range entities {
		if s, _ := n.state(fmt.Sprintf("e%d", i)); s.Rung < want || s.Rung > most[i] {
			t.Errorf("e%d rang %d times in the end, want %d", i, s.Rung, want)
		}
	}
}

// timers returns the number of an entity's timers.
func (n *node) timers(id string) int {
	n.t.Helper()
	e, err := n.c.Entity(n.t.Context(), "alarm", id)
	if err != nil {
		n.t.Fatal(err)
	}
	return len(e.GetTimers())
}

// TestSnapshotsSurviveRestarts checks that an entity loaded from a snapshot and
// the events after it equals an entity replayed from all events, and that
// command IDs are still deduplicated.
func TestSnapshotsSurviveRestarts(t *testing.T) {
	n := newNode(t)
	total := int64(0)
	for life := range 3 {
		for i := range 137 {
			total += int64(i)
			cmd := client.Command{EntityType: "alarm", EntityID: "x", Name: "add", ID: fmt.Sprintf("%d-%d", life, i), Data: fmt.Appendf(nil, `{"amount":%d}`, i)}
			first, err := n.c.Send(t.Context(), cmd)
			if err != nil {
				t.Fatal(err)
			}
			if i == 100 {
				n.stop()
				n.start()
				again, err := n.c.Send(t.Context(), cmd)
				if err != nil || again.Sequence != first.Sequence || string(again.Data) != string(first.Data) {
					t.Fatalf("a command sent again: %+v %v, before %+v", again, err, first)
				}
			}
		}
		if s, sequence := n.state("x"); s.Total != total || sequence != uint64(137*(life+1)) {
			t.Fatalf("life %d: %d at %d, want %d", life, s.Total, sequence, total)
		}
	}
}

// TestDeletedEntityStartsAgain checks that a deletion removes the state and the
// timers, and that the next command starts from the empty state with the next
// sequence, before and after a stop.
func TestDeletedEntityStartsAgain(t *testing.T) {
	n := newNode(t)
	id, due := "", 50*time.Millisecond
	for inTime := false; !inTime; { // retry until the entity is deleted before the timer is due
		due *= 2
		id = fmt.Sprintf("x%d", due)
		for i := range 25 {
			n.send(id, "add", map[string]int{"amount": i})
		}
		armed := time.Now()
		n.send(id, "arm", arm{"never", due.Milliseconds(), 1})
		n.send(id, "remove", nil)
		inTime = time.Since(armed) < due
	}
	if s, sequence := n.state(id); s.Total != 0 || sequence != 26 { // the last event is the tombstone
		t.Fatalf("deleted: %+v at %d", s, sequence)
	}
	if r := n.send(id, "add", map[string]int{"amount": 7}); r.Sequence != 27 {
		t.Fatalf("the next life begins at %d", r.Sequence)
	}
	n.stop()
	n.start()
	if s, sequence := n.state(id); s.Total != 7 || sequence != 27 {
		t.Fatalf("after a stop: %+v at %d", s, sequence)
	}
	n.send("y", "arm", arm{"later", due.Milliseconds(), 1}) // due after the due time of the deleted incarnation's timer
	for end := time.Now().Add(testkit.Patience); ; time.Sleep(5 * time.Millisecond) {
		if s, _ := n.state("y"); s.Rung == 1 {
			break
		} else if time.Now().After(end) {
			t.Fatal("a timer never fires")
		}
	}
	if s, _ := n.state(id); s.Rung != 0 {
		t.Fatalf("a timer of a deleted entity fired: %+v", s)
	}
}
