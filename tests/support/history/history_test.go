package history

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const verdictTime = 10 * time.Second

var acc = Entity{"account", "a"}

func deposit(id string, start, end int, number int64, balance int64, sequence uint64) Attempt {
	return Attempt{
		Entity: acc, Name: "deposit", CommandID: id, Number: number, Start: time.Duration(start), End: time.Duration(end),
		Outcome: OK, Reply: fmt.Sprintf(`{"balance":%d}`, balance), Sequence: sequence, EventCount: 1,
	}
}

func balance(start, end int, value int64, sequence uint64) Attempt {
	return Attempt{
		Entity: acc, Name: "balance", Query: true, Start: time.Duration(start), End: time.Duration(end),
		Outcome: OK, Reply: fmt.Sprintf(`{"balance":%d}`, value), Sequence: sequence,
	}
}

func with(a Attempt, change func(*Attempt)) Attempt {
	change(&a)
	return a
}

func withdrawal(id string, start, end int, number int64) Attempt {
	return with(deposit(id, start, end, number, 0, 0), func(a *Attempt) {
		a.Name, a.Outcome, a.Code, a.Reply, a.EventCount = "withdraw", Rejected, "insufficient_funds", "", 0
	})
}

func unknown(a Attempt) Attempt {
	return with(a, func(a *Attempt) { a.Outcome, a.Reply, a.Sequence, a.EventCount = Unknown, "", 0, 0 })
}

// TestLinearizable checks that the checker accepts valid histories, and rejects
// histories into which the test has put an error.
func TestLinearizable(t *testing.T) {
	for name, test := range map[string]struct {
		wrong    bool
		attempts []Attempt
	}{
		"one after the other":           {false, []Attempt{deposit("1", 0, 10, 5, 5, 1), balance(20, 30, 5, 1), deposit("2", 40, 50, 5, 10, 2), balance(60, 70, 10, 2)}},
		"at the same time":              {false, []Attempt{deposit("1", 0, 10, 5, 12, 2), deposit("2", 5, 10, 7, 7, 1), balance(5, 10, 7, 1), balance(60, 70, 12, 2)}},
		"stale read":                    {true, []Attempt{deposit("1", 0, 10, 5, 5, 1), balance(20, 30, 0, 0)}},
		"read of the future":            {true, []Attempt{balance(0, 10, 5, 1), deposit("1", 20, 30, 5, 5, 1), balance(60, 70, 5, 1)}},
		"reads that go back":            {true, []Attempt{deposit("1", 0, 50, 5, 5, 1), balance(10, 20, 5, 1), balance(30, 40, 0, 0), balance(60, 70, 5, 1)}},
		"lost update":                   {true, []Attempt{deposit("1", 0, 10, 5, 5, 1), deposit("2", 20, 30, 7, 7, 1), balance(60, 70, 7, 1)}},
		"order against time":            {true, []Attempt{deposit("1", 0, 10, 5, 12, 2), deposit("2", 20, 30, 7, 7, 1), balance(60, 70, 12, 2)}},
		"unknown that took effect":      {false, []Attempt{unknown(deposit("1", 0, 10, 5, 0, 0)), balance(20, 30, 5, 1)}},
		"unknown that did not":          {false, []Attempt{unknown(deposit("1", 0, 10, 5, 0, 0)), balance(20, 30, 0, 0)}},
		"unknown that did later":        {false, []Attempt{unknown(deposit("1", 0, 10, 5, 0, 0)), balance(20, 30, 0, 0), balance(40, 50, 5, 1)}},
		"unknown that was undone":       {true, []Attempt{unknown(deposit("1", 0, 10, 5, 0, 0)), balance(20, 30, 5, 1), balance(40, 50, 0, 0)}},
		"unknown before its start":      {true, []Attempt{balance(0, 10, 5, 1), unknown(deposit("1", 20, 30, 5, 0, 0)), balance(60, 70, 5, 1)}},
		"failed that took effect":       {true, []Attempt{with(deposit("1", 0, 10, 5, 0, 0), func(a *Attempt) { a.Outcome = Failed }), balance(20, 30, 5, 1)}},
		"sent again":                    {false, []Attempt{unknown(deposit("1", 0, 10, 5, 0, 0)), deposit("1", 20, 30, 5, 5, 1), deposit("1", 40, 50, 5, 5, 1), balance(60, 70, 5, 1)}},
		"acknowledged before it was":    {true, []Attempt{deposit("1", 0, 10, 5, 5, 1), balance(20, 30, 0, 0), deposit("1", 40, 50, 5, 5, 1), balance(60, 70, 5, 1)}},
		"right rejection":               {false, []Attempt{withdrawal("1", 0, 10, 5), deposit("2", 20, 30, 5, 5, 1), balance(60, 70, 5, 1)}},
		"rejection on a stale state":    {true, []Attempt{deposit("1", 0, 10, 5, 5, 1), withdrawal("2", 20, 30, 5), balance(60, 70, 5, 1)}},
		"rejected, then decided anew":   {false, []Attempt{withdrawal("1", 0, 10, 5), deposit("2", 20, 30, 9, 9, 1), withdrawn("1", 40, 50, 5, 4, 2), balance(60, 70, 4, 2)}},
		"rejection after an unknown":    {false, []Attempt{deposit("1", 0, 10, 5, 5, 1), unknown(withdrawn("2", 20, 30, 5, 0, 0)), withdrawal("3", 40, 50, 5), balance(60, 70, 0, 2)}},
		"no query at the end":           {true, []Attempt{balance(0, 10, 0, 0), deposit("1", 5, 20, 5, 5, 1)}},
		"withdrawal without the money":  {true, []Attempt{withdrawn("1", 0, 10, 5, -5, 1), balance(60, 70, -5, 1)}},
		"wrong reply, right sequence":   {true, []Attempt{deposit("1", 0, 10, 5, 6, 1), balance(60, 70, 5, 1)}},
		"right reply, wrong sequence":   {true, []Attempt{deposit("1", 0, 10, 5, 5, 2), balance(60, 70, 5, 1)}},
		"two commands at one sequence":  {true, []Attempt{deposit("1", 0, 10, 5, 5, 1), deposit("2", 0, 10, 5, 5, 1), balance(60, 70, 10, 2)}},
		"event although nothing is new": {true, []Attempt{with(deposit("1", 0, 10, 5, 5, 1), func(a *Attempt) { a.EventCount = 0 }), balance(60, 70, 5, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			h := New()
			for _, a := range test.attempts {
				h.Add(a)
			}
			if _, err := h.Linearizable(verdictTime, "account"); test.wrong != (err != nil) {
				t.Errorf("wrong is %t, the checker says: %v", test.wrong, err)
			}
		})
	}
}

func withdrawn(id string, start, end int, number, left int64, sequence uint64) Attempt {
	return with(deposit(id, start, end, number, left, sequence), func(a *Attempt) { a.Name = "withdraw" })
}

// TestEventsResolveUnknownOutcomes checks that the checker takes the order of the
// events into account.
func TestEventsResolveUnknownOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		wrong  bool
		events []Event
		reads  []Attempt
	}{
		"took effect between the reads": {false, events("1", "2"), []Attempt{balance(40, 50, 5, 1), balance(60, 70, 10, 2)}},
		"took effect before its start":  {true, events("2", "1"), []Attempt{balance(40, 50, 10, 2), balance(60, 70, 10, 2)}},
		"is not there":                  {false, events("1"), []Attempt{balance(40, 50, 5, 1), balance(60, 70, 5, 1)}},
		"was seen and is not there":     {true, events("1"), []Attempt{balance(40, 50, 10, 2), balance(60, 70, 10, 2)}},
	} {
		h := New()
		for _, a := range append(test.reads, deposit("1", 0, 10, 5, 5, 1), unknown(deposit("2", 20, 30, 5, 0, 0))) {
			h.Add(a)
		}
		_, _ = h.CheckEvents(acc, test.events) // only the order of the events matters here
		if _, err := h.Linearizable(verdictTime, "account"); test.wrong != (err != nil) {
			t.Errorf("%s: wrong is %t, the checker says: %v", name, test.wrong, err)
		}
	}
}

// TestChainStaleRead checks that the checker finds a stale read in a chain's
// history with many callers.
func TestChainStaleRead(t *testing.T) {
	record := func(stale bool) *History {
		h, s := New(), state{}
		e := Entity{"chain", "c"}
		for i := range 200 {
			at := time.Duration(100 * i)
			before := s
			s, _ = s.apply("chain", event{name: "linked", number: int64(i), commandID: fmt.Sprint(i)})
			h.Add(Attempt{Entity: e, Name: "link", CommandID: fmt.Sprint(i), Number: int64(i), Start: at - 90, End: at + 50, Outcome: OK, Reply: s.reply("chain"), Sequence: s.sequence, EventCount: 1})
			if i%10 == 0 {
				h.Add(Attempt{Entity: e, Name: "link", CommandID: fmt.Sprint("abandoned-", i), Start: at, End: at + 1, Outcome: Unknown})
			}
			seen := s
			if stale && i == 150 {
				seen = before
			}
			h.Add(Attempt{Entity: e, Name: "head", Query: true, Start: at + 60, End: at + 70, Outcome: OK, Reply: seen.reply("chain"), Sequence: seen.sequence})
		}
		return h
	}
	if n, err := record(false).Linearizable(verdictTime, "chain"); err != nil || n != 420 {
		t.Errorf("checked %d operations: %v", n, err)
	}
	if _, err := record(true).Linearizable(verdictTime, "chain"); err == nil || !strings.Contains(err.Error(), "chain/c") {
		t.Errorf("a stale read among 420 operations: %v", err)
	}
}

func events(ids ...string) []Event {
	var all []Event
	for i, id := range ids {
		all = append(all, Event{Sequence: uint64(i + 1), Type: "deposited", CommandID: id, Data: []byte(`{"amount":5}`)})
	}
	return all
}

func TestCheckEvents(t *testing.T) {
	one, two := deposit("1", 0, 10, 5, 5, 1), deposit("2", 20, 30, 5, 10, 2)
	again := with(one, func(a *Attempt) { a.Start, a.End, a.Duplicate = 40, 50, true })
	tests := map[string]struct {
		fault    string // empty if the history is valid
		attempts []Attempt
		events   []Event
	}{
		"all there":          {"", []Attempt{one, two, again}, events("1", "2")},
		"unknown, there":     {"", []Attempt{one, unknown(two)}, events("1", "2")},
		"unknown, not there": {"", []Attempt{one, unknown(two)}, events("1")},
		"lost":               {"LOST: command 2", []Attempt{one, two}, events("1")},
		"twice":              {"took effect twice", []Attempt{one, two}, events("1", "2", "1")},
		"other order":        {"is event 2", []Attempt{one, two}, events("2", "1")},
		"gap":                {"has sequence 2", []Attempt{one, two}, events("1", "2")[1:]},
		"unasked":            {"nobody sent", []Attempt{one}, events("1", "x")},
		"other content":      {"the events make", []Attempt{one}, []Event{{1, "deposited", "1", []byte(`{"amount":6}`)}}},
		"no content":         {"the events make", []Attempt{one}, []Event{{1, "deposited", "1", nil}}},
		"other event":        {`no event "deleted"`, []Attempt{one}, []Event{{1, "deleted", "1", nil}}},
		"failed, there":      {"failed", []Attempt{with(one, func(a *Attempt) { a.Outcome = Failed })}, events("1")},
		"failed, then sent":  {"", []Attempt{with(one, func(a *Attempt) { a.Outcome = Failed }), unknown(one)}, events("1")},
		"two replies":        {"two outcomes", []Attempt{one, with(again, func(a *Attempt) { a.Reply = `{"balance":6}` })}, events("1")},
		"two sequences":      {"two outcomes", []Attempt{one, with(again, func(a *Attempt) { a.Sequence = 2 })}, events("1")},
		"not a duplicate":    {"carried out again", []Attempt{one, with(again, func(a *Attempt) { a.Duplicate = false })}, events("1")},
		"rejected after":     {"rejected after", []Attempt{one, with(again, func(a *Attempt) { a.Outcome = Rejected })}, events("1")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := New()
			for _, a := range test.attempts {
				h.Add(a)
			}
			_, err := h.CheckEvents(acc, test.events)
			if test.fault == "" && err != nil || test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)) {
				t.Errorf("fault %q, got %v", test.fault, err)
			}
		})
	}
}
