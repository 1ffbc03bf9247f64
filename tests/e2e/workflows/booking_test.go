package workflows

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

const bookingSource = "../../../examples/wasm/booking"

// bookingState is a run of the example in TypeScript.
type bookingState struct {
	Status   string
	Steps    int
	WaitsFor []string
	Result   struct {
		Seats  int
		PaidBy string
	}
	Code, Message string
}

// changedBooking builds the example in TypeScript with a change.
func changedBooking(t *testing.T, node *testkit.Node, old, new string) []byte {
	t.Helper()
	source, err := filepath.Abs(bookingSource)
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(source, "booking.ts"))
	if err != nil || !strings.Contains(string(script), old) {
		t.Fatalf("the example does not have %q: %v", old, err)
	}
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "booking.wasm")
	project, err := os.ReadFile(filepath.Join(source, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"booking.ts": strings.Replace(string(script), old, new, 1), "package.json": string(project)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(source, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if text, code := node.Run("build", dir, "-o", out); code != 0 {
		t.Fatal(text)
	}
	module, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// TestBookingsSurviveKills runs the example in TypeScript while its node is
// killed. Some bookings find the hotel sold out, some are cancelled, and the
// others are paid. Every seat that a booking has taken is paid or returned, once.
// A module that changes the step that runs wait for is refused, and one that adds
// a step after it serves.
func TestBookingsSurviveKills(t *testing.T) {
	const seats, hotel = 1000, 20
	wasm := testkit.BuildExample(t, "booking")
	cluster := testkit.StartCluster(t, 1, testkit.ClusterOptions{Shards: 6, Flags: []string{"--admin", "full"}})
	node := cluster.Node(0)
	b := &bank{t: t, cluster: cluster, c: cluster.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 50 * time.Millisecond})}
	b.push(wasm)
	b.send("offer", "ba1", "add", fmt.Sprintf(`{"seats":%d}`, seats))
	b.send("offer", "ritz", "add", fmt.Sprintf(`{"seats":%d}`, hotel))
	trips := hotel + 2*(*killCount)
	for i := range trips {
		if b.send("booking", fmt.Sprint("t", i), "start", `{"flight":"ba1","hotel":"ritz","seats":1}`); i%(trips / *killCount) == 1 {
			cluster.Kill(0)
			node.MustVerify()
			cluster.Restart(0)
		}
	}
	state := func(id string) bookingState { return query[bookingState](b, "booking", id, "state") }
	waiting := map[string]bool{}
	for i := range trips {
		id := fmt.Sprint("t", i)
		cluster.Await("the booking waits or fails", func() bool {
			s := state(id)
			waiting[id] = len(s.WaitsFor) == 1 && s.WaitsFor[0] == "wait payment"
			if s.Status == "failed" && s.Code != "sold_out" {
				t.Fatalf("%s: %+v", id, s)
			}
			return waiting[id] || s.Status == "failed"
		})
		if !waiting[id] {
			delete(waiting, id)
		}
	}
	if len(waiting) == 0 || len(waiting) == trips {
		t.Fatalf("%d of %d bookings wait for their payment", len(waiting), trips)
	}

	const wait = `f.wait("payment", { within: "48h", schema: Payment })`
	_, err := b.c.Upload(t.Context(), changedBooking(t, node, wait, strings.Replace(wait, "48h", "72h", 1)), true)
	if text := fmt.Sprint(err); err == nil || !strings.Contains(text, "run t") || !strings.Contains(text, "step 3: the code asks for wait payment with another payload or time than the history has") {
		t.Fatalf("a module that breaks runs: %v", err)
	}
	b.push(changedBooking(t, node, "return { seats, paidBy", `await f.call("offer", "paid", "add", { seats }); return { seats, paidBy`))
	cluster.Kill(0)
	cluster.Restart(0)

	paid := 0
	for i := range trips {
		id := fmt.Sprint("t", i)
		if !waiting[id] {
			continue
		}
		if i%5 == 0 {
			b.send("booking", id, "cancel", "")
		} else {
			b.send("booking", id, "signal", `{"name":"payment","value":{"by":"eve"}}`)
			paid++
		}
		cluster.Await("the booking ends", func() bool { return state(id).Status != "running" })
		if s := state(id); i%5 == 0 && s.Code != "cancelled" || i%5 > 0 && (s.Status != "completed" || s.Result.PaidBy != "eve" || s.Steps != 4) {
			t.Errorf("%s: %+v", id, s)
		}
	}
	for id, want := range map[string]int{"ba1": seats - paid, "ritz": hotel - paid, "paid": paid} {
		if left := query[struct{ Left int }](b, "offer", id, "left").Left; left != want {
			t.Errorf("%s has %d seats, want %d", id, left, want)
		}
	}
	cluster.Kill(0)
	node.MustVerify()
}

// TestGuideShowsTheBooking: the function on the guide's page is that of the
// example, and the commands print what the page shows.
func TestGuideShowsTheBooking(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(bookingSource, "booking.ts"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/guide/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## In TypeScript\n")
	_, block, more := strings.Cut(section, "```ts\n")
	block, _, end := strings.Cut(block, "```")
	if !ok || !more || !end || !strings.Contains(string(script), block) {
		t.Fatalf("the page shows another function than the example:\n%s", block)
	}
	wasm := testkit.BuildExample(t, "booking")
	cluster := testkit.StartCluster(t, 1, testkit.ClusterOptions{Shards: 6})
	if _, err := cluster.Client(client.Options{}).Upload(t.Context(), wasm, true); err != nil {
		t.Fatal(err)
	}
	printsWhatIsShown(t, cluster, section, "the Ritz has one room:\n\n")
}
