// Guest has five entity types for the tests of floods: fork, whose command
// sends two messages to forks; alarm, whose timers set themselves again; bell,
// which has ordinary timers; pass, a chain of messages that ends; and heavy,
// whose commands use as many resources as a command may.
package main

import (
	"strconv"
	"strings"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// Count is the state of all types: the number of events.
type Count struct {
	N int64 `json:"n"`
}

// Done is the event that counts.
type Done struct{}

// Ring sets timers that are due after AfterMs milliseconds.
type Ring struct {
	Timers  int64  `json:"timers"`
	AfterMs int64  `json:"afterMs"`
	Pad     string `json:"pad"`
}

// Hop is a command that is sent to the next entity the given number of times.
type Hop struct {
	Left int64 `json:"left"`
}

func typ(name string) *hostd.Type[Count] {
	t := hostd.Entity[Count](name, hostd.JSON)
	hostd.Event(t, "done", func(s *Count, _ Done) { s.N++ })
	hostd.Query(t, "count", func(_ *hostd.View, s *Count, _ hostd.None) (Count, error) { return *s, nil })
	return t
}

func fork() *hostd.Type[Count] {
	t := typ("fork")
	hostd.Command(t, "fork", func(c *hostd.Context, _ *Count, _ hostd.None) (hostd.None, error) {
		c.Emit(Done{})
		for range 2 {
			c.Send("fork", strconv.FormatUint(c.Random(), 36), "fork", hostd.None{})
		}
		return hostd.None{}, nil
	})
	return t
}

func alarm() *hostd.Type[Count] {
	t := typ("alarm")
	hostd.Command(t, "ring", func(c *hostd.Context, _ *Count, r Ring) (hostd.None, error) {
		c.Emit(Done{})
		for i := range r.Timers {
			c.SetTimer("t"+strconv.FormatInt(i, 10), c.Now(), "ring", r)
		}
		return hostd.None{}, nil
	})
	return t
}

func bell() *hostd.Type[Count] {
	t := typ("bell")
	hostd.Command(t, "arm", func(c *hostd.Context, _ *Count, r Ring) (hostd.None, error) {
		for i := range r.Timers {
			c.SetTimer("t"+strconv.FormatInt(i, 10), c.Now().Add(hostd.Duration(r.AfterMs)*hostd.Millisecond), "strike", hostd.None{})
		}
		return hostd.None{}, nil
	})
	hostd.Command(t, "strike", func(c *hostd.Context, _ *Count, _ hostd.None) (hostd.None, error) {
		c.Emit(Done{})
		return hostd.None{}, nil
	})
	return t
}

func pass() *hostd.Type[Count] {
	t := typ("pass")
	hostd.Command(t, "pass", func(c *hostd.Context, _ *Count, h Hop) (hostd.None, error) {
		c.Emit(Done{})
		if h.Left > 0 {
			id, _ := strconv.Atoi(c.EntityID())
			c.Send("pass", strconv.Itoa(id+1), "pass", Hop{h.Left - 1})
		}
		return hostd.None{}, nil
	})
	return t
}

// Item is one of many items in the payload of a heavy command. Each item is
// checked against the schema.
type Item struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// Load is the payload of a heavy command and says how many bytes the command
// writes.
type Load struct {
	Items  []Item `json:"items"`
	Pad    string `json:"pad"`
	Events int64  `json:"events"`
	Bytes  int64  `json:"bytes"` // size of each event in bytes
	Sends  int64  `json:"sends"`
	Timers int64  `json:"timers"`
	Reply  int64  `json:"reply"` // size in bytes
	Spin   int64  `json:"spin"`  // iterations of a loop
}

// Much is the event of a heavy command.
type Much struct {
	Pad string `json:"pad"`
}

func heavy() *hostd.Type[Count] {
	t := typ("heavy")
	hostd.Event(t, "much", func(s *Count, _ Much) { s.N++ })
	hostd.Command(t, "load", func(c *hostd.Context, _ *Count, l Load) (Much, error) {
		sum := uint64(1)
		for range l.Spin {
			sum = sum*6364136223846793005 + 1442695040888963407
		}
		for i := range l.Events {
			c.Emit(Much{strings.Repeat("x", int(l.Bytes))}, "tag-"+strconv.FormatUint(sum>>60, 10), "item-"+strconv.FormatInt(i, 10))
		}
		for i := range l.Sends {
			c.Send("bell", "heavy-"+strconv.FormatInt(i, 10), "strike", hostd.None{})
		}
		for i := range l.Timers {
			c.SetTimer("t"+strconv.FormatInt(i, 10), c.Now().Add(hostd.Duration(i+1)*3600*1000*hostd.Millisecond), "load", Load{})
		}
		return Much{strings.Repeat("x", int(l.Reply))}, nil
	})
	return t
}

var _ = hostd.Serve("floods", "1.0.0", fork(), alarm(), bell(), pass(), heavy())

func main() {}
