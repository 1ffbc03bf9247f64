package hostd_test

import (
	"fmt"
	"testing"

	hostd "github.com/hostd/hostd/guest-sdk/go"
	"github.com/hostd/hostd/guest-sdk/go/hostdtest"
)

// t stands for the *testing.T of a test: an example has none.
var t testing.TB = printer{}

// printer prints what fails.
type printer struct{ testing.TB }

func (printer) Helper()                           {}
func (printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (printer) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (printer) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }

type (
	tally struct {
		Total int64 `json:"total"`
	}
	add struct {
		Amount int64 `json:"amount"`
	}
	added struct {
		Amount int64 `json:"amount"`
	}
	totals struct {
		Total int64 `json:"total"`
	}
)

// tallies declares an entity type. In a module it is served by
//
//	var _ = hostd.Serve("tally", "1.0.0", tallies())
func tallies() *hostd.Type[tally] {
	t := hostd.Entity[tally]("tally", hostd.JSON)
	hostd.Event(t, "added", func(s *tally, e added) { s.Total += e.Amount })
	hostd.Command(t, "add", func(c *hostd.Context, s *tally, cmd add) (totals, error) {
		if cmd.Amount == 0 {
			return totals{}, hostd.Reject("zero", "nothing to add")
		}
		c.Emit(added{cmd.Amount}) // s.Total has changed when Emit returns
		return totals{s.Total}, nil
	})
	hostd.Query(t, "total", func(_ *hostd.View, s *tally, _ hostd.None) (totals, error) {
		return totals{s.Total}, nil
	})
	return t
}

// An entity type is a state, events that change it, commands that decide, and
// queries. It runs natively under go test, with the driver of package hostdtest.
func Example() {
	d := hostdtest.New(t, tallies()).Given(added{2})
	out := d.When("add", add{3}).Output()
	for _, e := range out.Events {
		fmt.Printf("event %s %s\n", e.Type, e.Payload)
	}
	fmt.Printf("reply %s\n", out.Reply)
	fmt.Printf("state %+v\n", d.State())
	// Output:
	// event added {"amount":3}
	// reply {"total":5}
	// state {Total:5}
}

// A command is rejected with a code for programs and a message for people.
// Nothing is stored then.
func ExampleReject() {
	d := hostdtest.New(t, tallies())
	out := d.When("add", add{0}).Output()
	fmt.Printf("%s: %s\n", out.Reject.Code, out.Reject.Message)
	// Output: zero: nothing to add
}

// Events that are stored in an earlier form are converted when they are read.
func ExampleUpcast() {
	type placed struct{ Items []string }
	type placedV1 struct{ Item string }
	type order struct{ Items []string }

	orders := hostd.Entity[order]("order", hostd.JSON)
	hostd.Upcast(orders, "placed", 1, func(old placedV1) placed { return placed{Items: []string{old.Item}} })
	hostd.Event(orders, "placed", func(s *order, e placed) { s.Items = append(s.Items, e.Items...) })
	hostd.Command(orders, "place", func(c *hostd.Context, _ *order, items []string) (hostd.None, error) {
		c.Emit(placed{items})
		return hostd.None{}, nil
	})

	d := hostdtest.New(t, orders).Given(placedV1{"book"})
	out := d.When("place", []string{"pen", "ink"}).Output()
	fmt.Printf("stored as %s\n", out.Events[0].Type)
	fmt.Println(d.State().Items)
	// Output:
	// stored as placed.v2
	// [book pen ink]
}

// Messages between entities are delivered after the sender's events are stored.
// A world of package hostdtest delivers them in a test.
func ExampleContext_Send() {
	type reading struct{ Value int64 }
	sensors := hostd.Entity[tally]("sensor", hostd.JSON)
	hostd.Event(sensors, "added", func(s *tally, e added) { s.Total += e.Amount })
	hostd.Command(sensors, "measure", func(c *hostd.Context, _ *tally, r reading) (hostd.None, error) {
		c.Emit(added{r.Value})
		c.Send("tally", "all", "add", add{r.Value})
		return hostd.None{}, nil
	})

	w := hostdtest.NewWorld(t, 1, sensors, tallies())
	w.Command("sensor", "a", "measure", reading{3})
	w.Command("sensor", "b", "measure", reading{4})
	fmt.Println(len(w.Sends()), "messages")
	w.Run()
	fmt.Printf("%s\n", w.Query("tally", "all", "total", nil).Reply)
	// Output:
	// 2 messages
	// {"total":7}
}
