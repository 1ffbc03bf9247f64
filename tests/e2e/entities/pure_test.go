package entities

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// lines is the log of a node. It is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// of returns the lines that contain a word.
func (l *lines) of(word string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(strings.Split(l.text.String(), "\n"), func(line string) bool { return !strings.Contains(line, word) })
}

// counted returns a counter of an entity type.
func (n *node) counted(metric, entityType string) (count float64) {
	n.t.Helper()
	for line := range strings.Lines(n.metrics()) {
		if value, found := strings.CutPrefix(line, fmt.Sprintf("%s{entity_type=%q} ", metric, entityType)); found {
			fmt.Sscan(value, &count)
		}
	}
	return count
}

const (
	compared = "hostd_guest_states_compared_total"
	diverged = "hostd_guest_divergence_total"
)

// checked waits until the given number of further states of a type were
// compared. It returns the total number of states that differ.
func (n *node) checked(entityType string, more float64) (differ float64) {
	n.t.Helper()
	want := n.seen[entityType] + more
	for end := time.Now().Add(testkit.Patience); n.counted(compared, entityType) < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("%v states of %s were compared, want %v", n.counted(compared, entityType), entityType, want)
		}
	}
	if n.seen == nil {
		n.seen = map[string]float64{}
	}
	n.seen[entityType] = n.counted(compared, entityType)
	return n.counted(diverged, entityType)
}

func (n *node) passivate(entityType, id string) {
	n.t.Helper()
	if _, err := n.api().PassivateEntity(n.t.Context(), connect.NewRequest(&entityv1.PassivateEntityRequest{EntityType: entityType, EntityId: id})); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) command(entityType, id, name, data string) {
	n.t.Helper()
	if _, err := n.c.Send(n.t.Context(), client.Command{EntityType: entityType, EntityID: id, Name: name, Data: []byte(data)}); err != nil {
		n.t.Fatalf("%s %s %s: %v", name, entityType, id, err)
	}
}

func (n *node) query(entityType, id string) {
	n.t.Helper()
	if _, err := n.c.Query(n.t.Context(), client.Query{EntityType: entityType, EntityID: id, Name: "state"}); err != nil {
		n.t.Fatal(err)
	}
}

// TestImpureGuestIsReported checks that a type whose state contains data that
// is not in its events is counted, and named once in the log. Finding the type
// must not depend on why its entities leave memory, or on whether snapshots of
// such states exist. A conforming type of the same module is not named.
func TestImpureGuestIsReported(t *testing.T) {
	n := &node{t: t, dir: t.TempDir(), module: "tests/e2e/entities/impure", checks: 1, log: &lines{}}
	n.open()
	work := func(entityType, id string) {
		t.Helper()
		for range 4 { // every second state gets a snapshot
			n.command(entityType, id, "add", `{"amount":1}`)
		}
		n.query(entityType, id)
	}
	for way, left := range map[string]func(entityType, id string){
		"asked to leave":    n.passivate,
		"leaving by itself": func(entityType, id string) { n.command(entityType, id, "leave", `{"amount":1}`) },
	} {
		for _, entityType := range []string{"lucky", "watched", "fair"} {
			before := n.counted(diverged, entityType)
			work(entityType, way)
			left(entityType, way)
			want := before + 1
			if entityType == "fair" {
				want = 0
			}
			if got := n.checked(entityType, 1); got != want {
				t.Errorf("%s: of %s %v states differ, want %v", way, entityType, got, want)
			}
		}
	}
	// On a slow machine an entity may be evicted between any two calls, and an
	// entity that is called during its check is not compared.
	for _, entityType := range []string{"idlelucky", "idlewatched", "idlefair"} {
		counts := diverged
		if entityType == "idlefair" {
			counts = compared
		}
		for end := time.Now().Add(testkit.Patience); n.counted(counts, entityType) == 0; {
			if time.Now().After(end) {
				t.Fatalf("of %s nothing is counted as %s", entityType, counts)
			}
			work(entityType, "idle")
			for tries := 0; tries < 100 && n.counted(counts, entityType) == 0; tries++ {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	if got := n.counted(diverged, "idlefair"); got != 0 {
		t.Errorf("%v states of an honest type differ", got)
	}
	for entityType, want := range map[string]int{"lucky": 1, "watched": 1, "fair": 0, "idlelucky": 1, "idlewatched": 1, "idlefair": 0} {
		if said := n.log.of("entity_type=" + entityType + " "); len(said) != want {
			t.Errorf("the log names %s %d times, want %d: %q", entityType, len(said), want, said)
		}
	}
}

// TestPureGuestIsNotReported checks that entities that evolve only by their
// events never differ when they are compared repeatedly: with and without
// snapshots, with timers and schedules, after deletion and re-creation, with
// truncated events, of a durable-state type, and read by a later module that
// evolves old events differently.
func TestPureGuestIsNotReported(t *testing.T) {
	n := &node{t: t, dir: t.TempDir(), module: "tests/e2e/entities/guest", checks: 1, log: &lines{}}
	n.open()
	if _, err := n.c.Upload(t.Context(), testkit.BuildExample(t, "session"), true); err != nil {
		t.Fatal(err)
	}
	demand := func(entityType string, more float64) {
		t.Helper()
		if differ := n.checked(entityType, more); differ != 0 {
			t.Errorf("%v states of %s differ: %q", differ, entityType, n.log.of("not pure"))
		}
	}
	for round := range 4 {
		n.send("ringing", "repeat", map[string]any{"name": "r", "everyMs": 100})
		for i := range 7 * (round + 1) {
			n.send("x", "add", map[string]int{"amount": i})
			n.command("session", "mall-x", "login", "")
			n.command("session", "mall-x", "add", fmt.Sprintf(`{"item":"tea","quantity":%d}`, i+1))
		}
		n.send("ringing", "arm", arm{"once", 0, 1})
		n.fill("trail", 40*round, 40)
		for _, id := range []string{"x", "ringing"} {
			n.passivate("alarm", id)
			demand("alarm", 1)
		}
		if n.command("session", "mall-x", "logout", ""); round == 2 {
			n.command("session", "mall-x", "login", "")
		}
		n.passivate("session", "mall-x")
		demand("session", 1)
		n.command("keeper", "x", "add", `{"amount":1}`)
		n.command("keeper", "x", "leave", "")
		demand("keeper", 1)
		n.passivate("trail", "x")
		demand("trail", 1)
		n.send("x", "add", map[string]int{"amount": round})
		if n.passivate("alarm", "x"); round == 1 {
			n.send("x", "remove", nil)
			n.send("x", "add", map[string]int{"amount": 1})
			n.passivate("alarm", "x")
		}
		demand("alarm", 1)
	}
	if _, err := n.c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/entities/later"), true); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		n.fill("trail", 160+30*i, 30)
		n.passivate("trail", "x")
		demand("trail", 1)
	}
}
