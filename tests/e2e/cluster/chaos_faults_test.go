package cluster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/journal"
)

// notes collects the faults that a check reports.
type notes []string

func (n *notes) Errorf(format string, args ...any) { *n = append(*n, fmt.Sprintf(format, args...)) }

// smallChaos is a history that follows every rule: the answers to callers, the
// journal, and the events that a follower received. The first event of y was
// truncated before the follower reached it.
type smallChaos struct {
	load    chaosLoad
	records []journal.Record // records of entity x
	have    map[dest]*kept
	stream  *stream
}

func newSmallChaos() *smallChaos {
	x, y := dest{"whole", "x"}, dest{"whole", "y"}
	c := &smallChaos{have: map[dest]*kept{x: newKept(), y: newKept()}, stream: newStream("whole")}
	c.load.acks = map[dest][]ack{x: {
		{of: x, sequence: 1, events: 1, command: client.Command{ID: "a"}, act: &act{Sends: []to{{"whole", "x", true}, {"whole", "x", false}}}},
	}}
	source := []journal.Section{{Kind: journal.SectionSource, Data: []byte{1}}}
	event := func(kind, payload string) []journal.Event {
		return []journal.Event{{Type: kind, Payload: []byte(payload)}}
	}
	c.records = []journal.Record{
		{Expected: 0, RecordedAt: 100, CommandID: "a", Events: event("acted", `{"timer":"t","token":"a","due":200}`)},
		{Expected: 1, RecordedAt: 110, Sections: source, Events: event("taken", `{"from":"whole/x","token":"a#0"}`)},
		{Expected: 2, RecordedAt: 120, Sections: source, Events: event("taken", `{"from":"whole/x","token":"a#1"}`)},
		{Expected: 3, RecordedAt: 130, Sections: source, Events: event("answered", `{"from":"whole/x","token":"a#0"}`)},
		{Expected: 4, RecordedAt: 200, Sections: source, Events: event("rang", `{"name":"t","token":"a","due":200}`)},
	}
	c.have[y].first = 2
	c.have[y].events = []told{{2, "last", ""}}
	c.stream.events["y"], c.stream.skipped = []told{{2, "last", ""}}, 1
	return c
}

// told runs the checks and returns the faults that they report.
func (c *smallChaos) told(t *testing.T) notes {
	var n notes
	x := c.have[dest{"whole", "x"}]
	for i := range c.records {
		if err := x.record(&c.records[i]); err != nil {
			t.Fatal(err)
		}
	}
	if c.stream.events["x"] == nil {
		c.stream.events["x"] = slices.Clone(x.events)
	}
	c.load.checkKept(&n, c.have)
	c.stream.check(&n, "a follower", c.have)
	return n
}

// TestChaosChecksFindFaults checks that the checks of TestChaos find each kind of
// fault, and report nothing for a correct history.
func TestChaosChecksFindFaults(t *testing.T) {
	if n := newSmallChaos().told(t); len(n) > 0 {
		t.Fatalf("without a fault: %q", n)
	}
	drop := func(c *smallChaos, i int) { c.records = slices.Delete(c.records, i, i+1) }
	again := func(c *smallChaos, i int) { c.records = append(c.records, c.records[i]) }
	follower := func(c *smallChaos, change func([]told) []told) {
		var events []told
		for i := range c.records {
			events = append(events, storedEvent(&c.records[i], 0))
		}
		c.stream.events["x"] = change(events)
	}
	for name, plant := range map[string]func(*smallChaos){
		"a lost command":        func(c *smallChaos) { drop(c, 0) },
		"a moved command":       func(c *smallChaos) { c.load.acks[dest{"whole", "x"}][0].sequence = 2 },
		"a stranger's command":  func(c *smallChaos) { c.records[4].Sections, c.records[4].CommandID = nil, "b" },
		"a lost send":           func(c *smallChaos) { drop(c, 1) },
		"a doubled send":        func(c *smallChaos) { again(c, 2) },
		"sends out of order":    func(c *smallChaos) { c.records[1], c.records[2] = c.records[2], c.records[1] },
		"a send of nobody":      func(c *smallChaos) { c.records[2].Events[0].Payload = []byte(`{"from":"whole/z","token":"z#0"}`) },
		"a lost answer":         func(c *smallChaos) { drop(c, 3) },
		"a doubled answer":      func(c *smallChaos) { again(c, 3) },
		"a lost timer":          func(c *smallChaos) { drop(c, 4) },
		"a timer fired twice":   func(c *smallChaos) { again(c, 4) },
		"a timer fired early":   func(c *smallChaos) { c.records[4].RecordedAt = 199 },
		"another timer's token": func(c *smallChaos) { c.records[4].Events[0].Payload = []byte(`{"name":"t","token":"b","due":200}`) },
		"an event not followed": func(c *smallChaos) { follower(c, func(e []told) []told { return slices.Delete(e, 2, 3) }) },
		"an event followed twice": func(c *smallChaos) {
			follower(c, func(e []told) []told { return append(e, e[4]) })
		},
		"the last not followed": func(c *smallChaos) { follower(c, func(e []told) []told { return e[:4] }) },
		"another event followed": func(c *smallChaos) {
			follower(c, func(e []told) []told { e[1].text += "!"; return e })
		},
		"events out of order": func(c *smallChaos) {
			follower(c, func(e []told) []told { e[1], e[2] = e[2], e[1]; return e })
		},
		"a cut not told of": func(c *smallChaos) { c.stream.skipped = 0 },
		"a cut told twice":  func(c *smallChaos) { c.stream.skipped = 2 },
		"a strange entity":  func(c *smallChaos) { c.stream.events["z"] = []told{{1, "", ""}} },
		"a gap behind a cut": func(c *smallChaos) {
			c.have[dest{"whole", "y"}].events = []told{{2, "last", ""}, {3, "more", ""}}
			c.stream.events["y"] = []told{{3, "more", ""}}
			c.stream.skipped = 2
		},
	} {
		c := newSmallChaos()
		plant(c)
		if n := c.told(t); len(n) == 0 {
			t.Errorf("%s is not found", name)
		}
	}
}
