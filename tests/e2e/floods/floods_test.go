// Package floods tests, with the real program, that other types are still
// served if the entities of one type create ever more work, or if its commands
// never end. The tests measure no time; they compare counts of the same run.
package floods

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// site is one node with the guest of the floods and a neighbour type.
type site struct {
	*testkit.Node
	t *testing.T
	c *client.Client
}

func start(t *testing.T, flags ...string) *site {
	n := testkit.StartNode(t, testkit.NodeOptions{Flags: append([]string{"--admin", "full", "--shards", "8"}, flags...)})
	s := &site{n, t, n.Client(client.Options{Timeout: testkit.Patience})}
	if _, err := s.c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/floods/guest"), true); err != nil {
		t.Fatal(err)
	}
	n.Push("counter")
	return s
}

func (s *site) send(entityType, id, name, data string) error {
	_, err := s.c.Send(s.t.Context(), client.Command{EntityType: entityType, EntityID: id, Name: name, Data: []byte(data)})
	return err
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// count returns the number of events of an entity.
func (s *site) count(entityType, id string) int {
	s.t.Helper()
	var out struct{ N int }
	r, err := s.c.Query(s.t.Context(), client.Query{EntityType: entityType, EntityID: id, Name: "count"})
	if err == nil {
		err = json.Unmarshal(r.Data, &out)
	}
	s.must(err)
	return out.N
}

// metric returns the sum of a metric over its labels.
func (s *site) metric(name string) (sum float64) {
	s.t.Helper()
	for series, v := range s.Metrics() {
		if rest, ok := strings.CutPrefix(series, name); ok && (rest == "" || rest[0] == '{') {
			sum += v
		}
	}
	return sum
}

// neighbour sends commands to another type, one at a time.
func (s *site) neighbour(from, n int) {
	s.t.Helper()
	for i := range n {
		if err := s.send("counter", strconv.Itoa(i%20), "add", `{"amount":1}`); err != nil {
			s.t.Fatalf("the neighbour's command %d: %v", from+i, err)
		}
	}
}

// TestMessageFloodDoesNotBlockNeighbours sends one command that leads to ever
// more messages. All commands of the neighbour must be executed, and between
// two of them there must be no more deliveries than fit into a few raft
// entries. The forks must make progress, too.
func TestMessageFloodDoesNotBlockNeighbours(t *testing.T) {
	testkit.Long(t, "long")
	s := start(t)
	s.neighbour(0, 20)
	s.must(s.send("fork", "first", "fork", ""))
	s.Await("the forks are many", func() bool { return s.metric("hostd_outbox_messages") > 2000 })
	const commands = 300
	before := s.metric("hostd_message_deliveries_total")
	s.neighbour(20, commands)
	delivered := s.metric("hostd_message_deliveries_total") - before
	t.Logf("%.1f deliveries for a command of the neighbour, %.0f sends wait", delivered/commands, s.metric("hostd_outbox_messages"))
	if delivered > 500*commands || delivered == 0 {
		t.Errorf("%.0f deliveries beside %d commands", delivered, commands)
	}
}

// TestTimerFloodIsBounded checks that timers that are due at once and
// set each other again use bounded resources, that 10,000 timers of another
// type that are due in the same second all fire, and that the neighbour's
// commands are executed.
func TestTimerFloodIsBounded(t *testing.T) {
	testkit.Long(t, "long")
	s := start(t)
	s.must(s.send("alarm", "a", "ring", fmt.Sprintf(`{"timers":128,"pad":%q}`, strings.Repeat("x", 1900))))
	s.Await("the timers ring", func() bool { return s.count("alarm", "a") > 20 })
	const bells, each = 100, 100
	for i := range bells {
		s.must(s.send("bell", strconv.Itoa(i), "arm", fmt.Sprintf(`{"timers":%d,"afterMs":3000}`, each)))
	}
	s.neighbour(0, 300)
	rung := s.count("alarm", "a")
	s.Await("all timers of the bells fire", func() bool {
		n := 0
		for i := range bells {
			n += s.count("bell", strconv.Itoa(i))
		}
		return n == bells*each
	})
	rung = s.count("alarm", "a") - rung
	t.Logf("%d rings of the alarm meanwhile", rung)
	if rung > bells*each/4 {
		t.Errorf("the alarm rang %d times while %d timers were due, each of which wrote a hundredth", rung, bells*each)
	}
}

// TestEndlessMessageChainEnds checks that every hop of a saga of 60
// hops is executed, and that an endless chain ends after 64 hops with its next
// message as a dead letter.
func TestEndlessMessageChainEnds(t *testing.T) {
	s := start(t)
	s.must(s.send("pass", "100", "pass", `{"left":60}`))
	s.must(s.send("pass", "1000", "pass", `{"left":1000000}`))
	s.Await("the saga ends", func() bool { return s.count("pass", "160") == 1 })
	s.Await("the endless chain ends", func() bool { return s.metric("hostd_dead_letters") == 1 })
	for i, want := range map[int]int{1064: 1, 1065: 0, 161: 0} {
		if n := s.count("pass", strconv.Itoa(i)); n != want {
			t.Errorf("pass %d was carried out %d times, want %d", i, n, want)
		}
	}
	text, code := s.Run("entity", "deadletters", "ls", "--addr", s.API())
	if code != 0 || !strings.Contains(text, "too_many_hops") {
		t.Errorf("%d: %s", code, text)
	}
}

// TestSuspensionStopsFlood checks that a flood stops when its type is suspended:
// commands are rejected with that reason, messages and timers wait, and queries
// and other types continue. Nothing is lost when the type is resumed.
func TestSuspensionStopsFlood(t *testing.T) {
	s := start(t)
	if text, code := s.Run("type", "suspend", "pass", "--addr", s.API()); code != 0 {
		t.Fatalf("%d: %s", code, text)
	}
	s.Await("commands are refused", func() bool {
		var refused *client.Error
		return errors.As(s.send("pass", "500", "pass", `{"left":0}`), &refused) && refused.Code == connect.CodeFailedPrecondition
	})
	s.must(s.send("bell", "b", "arm", `{"timers":5,"afterMs":1000}`))
	if text, code := s.Run("type", "suspend", "bell", "--addr", s.API()); code != 0 {
		t.Fatalf("%d: %s", code, text)
	}
	if text, code := s.Run("type", "resume", "pass", "--addr", s.API()); code != 0 {
		t.Fatalf("%d: %s", code, text)
	}
	s.Await("commands are taken", func() bool { return s.send("pass", "1", "pass", `{"left":10}`) == nil })
	s.Await("the chain ends", func() bool { return s.count("pass", "11") > 0 })
	s.neighbour(0, 300)
	fork := s.send("fork", "a", "fork", "")
	s.must(fork)
	if text, code := s.Run("type", "suspend", "fork", "--addr", s.API()); code != 0 {
		t.Fatalf("%d: %s", code, text)
	}
	s.Await("the forks stand still", func() bool {
		before := s.metric("hostd_message_deliveries_total")
		s.neighbour(0, 20)
		return s.metric("hostd_message_deliveries_total") == before
	})
	if s.metric("hostd_outbox_messages") == 0 {
		t.Error("no send waits")
	}
	if n := s.count("bell", "b"); n != 0 {
		t.Errorf("%d timers of a suspended type fired", n)
	}
	if text, code := s.Run("type", "resume", "bell", "--addr", s.API()); code != 0 {
		t.Fatalf("%d: %s", code, text)
	}
	s.Await("the timers fire", func() bool { return s.count("bell", "b") == 5 })
}

// TestBudgetBoundsFlood checks that a type over its budget of compute or writes
// receives no messages and timers until it is within the budget again. The
// neighbour continues, and nothing that waited is lost.
func TestBudgetBoundsFlood(t *testing.T) {
	testkit.Long(t, "long")
	s := start(t)
	digest := func(entityType string) string {
		m, err := s.c.ActiveModule(t.Context(), entityType)
		s.must(err)
		return m.GetModule().GetDigest()
	}
	limit := func(entityType, limits string) {
		t.Helper()
		if text, code := s.Run("module", "activate", entityType, digest(entityType), "--limit", limits, "--addr", s.API()); code != 0 {
			t.Fatalf("%d: %s", code, text)
		}
	}
	limit("fork", "bytes-per-second=1")
	limit("alarm", "fuel-per-second=1")
	s.must(s.send("fork", "first", "fork", ""))
	s.must(s.send("alarm", "a", "ring", `{"timers":128,"pad":""}`))
	s.neighbour(0, 300)
	// A command of either type exceeds a minute's budget. A message that was in
	// flight at the same time on another executor may be executed, too.
	if n := s.metric("hostd_message_deliveries_total"); n > 8 {
		t.Errorf("%.0f sends of a type that owes were carried out", n)
	}
	if n := s.count("alarm", "a"); n > 8 {
		t.Errorf("%d timers of a type that owes have fired", n)
	}
	if s.metric("hostd_outbox_messages") == 0 {
		t.Error("no send waits")
	}
	limit("fork", "none=")
	limit("alarm", "none=")
	s.Await("the sends go on", func() bool { return s.metric("hostd_message_deliveries_total") > 100 })
	s.Await("the timers go on", func() bool { return s.count("alarm", "a") > 20 })
}
