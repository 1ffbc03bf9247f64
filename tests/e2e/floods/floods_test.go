// Package floods tests with the program itself what the neighbours of a type
// notice whose entities make ever more work, or whose commands never end: they
// are served, and honest work beside it is carried out. Nothing is measured in time; what is compared
// was counted in the same run.
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

// site is one node with the guest of the floods and a neighbour.
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

// count is how often an entity has done something.
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

// metric is the sum of a metric over its labels.
func (s *site) metric(name string) (sum float64) {
	s.t.Helper()
	for series, v := range s.Metrics() {
		if rest, ok := strings.CutPrefix(series, name); ok && (rest == "" || rest[0] == '{') {
			sum += v
		}
	}
	return sum
}

// neighbour sends commands of another type, one after another.
func (s *site) neighbour(from, n int) {
	s.t.Helper()
	for i := range n {
		if err := s.send("counter", strconv.Itoa(i%20), "add", `{"amount":1}`); err != nil {
			s.t.Fatalf("the neighbour's command %d: %v", from+i, err)
		}
	}
}

// TestForksLeaveTheNeighbours: one command leads to ever more messages. The
// neighbour's commands are all carried out, and between two of them no more
// deliveries than a few rounds of the log carry; the forks go on as well.
func TestForksLeaveTheNeighbours(t *testing.T) {
	testkit.Long(t, "long")
	s := start(t)
	s.neighbour(0, 20)
	s.must(s.send("fork", "first", "fork", ""))
	s.Await("the forks are many", func() bool { return s.metric("hostd_outbox_sends") > 2000 })
	const commands = 300
	before := s.metric("hostd_send_deliveries_total")
	s.neighbour(20, commands)
	delivered := s.metric("hostd_send_deliveries_total") - before
	t.Logf("%.1f deliveries for a command of the neighbour, %.0f sends wait", delivered/commands, s.metric("hostd_outbox_sends"))
	if delivered > 500*commands || delivered == 0 {
		t.Errorf("%.0f deliveries beside %d commands", delivered, commands)
	}
}

// TestTimersThatSetThemselvesAgain: timers that are due at once, set again by
// each other, leave little; 10,000 timers of another type that are due in the
// same second all fire beside them, and the neighbour's commands are carried
// out.
func TestTimersThatSetThemselvesAgain(t *testing.T) {
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

// TestLongChainsArriveAndEndlessOnesEnd: of a saga of 60 hops every one is
// carried out; one that would go on ends after 64, and its next message is a
// dead letter.
func TestLongChainsArriveAndEndlessOnesEnd(t *testing.T) {
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

// TestSuspendedTypesWait: a flood stands still when its type is suspended:
// commands are refused by name, messages and timers wait, queries and
// neighbours go on. Nothing is lost when it is resumed.
func TestSuspendedTypesWait(t *testing.T) {
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
		before := s.metric("hostd_send_deliveries_total")
		s.neighbour(0, 20)
		return s.metric("hostd_send_deliveries_total") == before
	})
	if s.metric("hostd_outbox_sends") == 0 {
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

// TestBudgetsHoldFloods: a type beyond what it may compute or write in a second
// carries out no message and no timer until that is made up for; the neighbour
// goes on, and nothing that waited is lost.
func TestBudgetsHoldFloods(t *testing.T) {
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
	// A command of either takes more than a minute's worth: one that was on its
	// way beside the first, on another lane, may be carried out too.
	if n := s.metric("hostd_send_deliveries_total"); n > 8 {
		t.Errorf("%.0f sends of a type that owes were carried out", n)
	}
	if n := s.count("alarm", "a"); n > 8 {
		t.Errorf("%d timers of a type that owes have fired", n)
	}
	if s.metric("hostd_outbox_sends") == 0 {
		t.Error("no send waits")
	}
	limit("fork", "none=")
	limit("alarm", "none=")
	s.Await("the sends go on", func() bool { return s.metric("hostd_send_deliveries_total") > 100 })
	s.Await("the timers go on", func() bool { return s.count("alarm", "a") > 20 })
}
