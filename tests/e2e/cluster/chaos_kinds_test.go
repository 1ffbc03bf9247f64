package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// tickEvery is the period of the schedules.
const tickEvery = time.Second

// kindsLoad is a load on entities of special kinds. Each entity has one caller,
// which knows what each answer must be.
type kindsLoad struct {
	c       *client.Client
	stop    context.CancelFunc
	callers sync.WaitGroup
	all     []*sole
}

// sole is the only caller of an entity.
type sole struct {
	of    dest
	least int64 // number of commands that were executed
	maybe int64 // number of commands with an unknown outcome
	fault error
}

func startKinds(w *world) *kindsLoad {
	w.t.Helper()
	if _, err := w.c.Upload(w.t.Context(), testkit.BuildGuest(w.t, "tests/e2e/cluster/kinds"), true); err != nil {
		w.t.Fatal(err)
	}
	l := &kindsLoad{c: w.c, all: []*sole{{of: dest{"single", "singleton"}}}}
	for i := range 2 {
		for _, t := range []string{"latest", "kept", "clock", "fleeting"} {
			l.all = append(l.all, &sole{of: dest{t, strconv.Itoa(i)}})
		}
	}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	for _, s := range l.all {
		rng := rand.New(rand.NewPCG(w.rng.Uint64(), 4))
		l.callers.Go(func() {
			if s.of.Type == "clock" {
				s.send(l.c, "repeat", fmt.Appendf(nil, `{"everyMs":%d}`, tickEvery.Milliseconds()))
			}
			for ctx.Err() == nil && s.fault == nil {
				s.add(l.c)
				time.Sleep(time.Duration(rng.Int64N(int64(150 * time.Millisecond)))) // sometimes long enough for the entity to leave memory
			}
			for s.of.Type == "clock" && s.fault == nil {
				if _, known := s.send(l.c, "rest", nil); known {
					return
				}
			}
		})
	}
	w.t.Cleanup(func() { l.stop(); l.callers.Wait() })
	return l
}

// send executes a command. It returns false if the outcome stays unknown.
func (s *sole) send(c *client.Client, name string, data []byte) (answer []byte, known bool) {
	cmd := client.Command{EntityType: s.of.Type, EntityID: s.of.ID, Name: name, ID: client.NewCommandID(), Data: data}
	for end := time.Now().Add(2 * testkit.Patience); ; time.Sleep(time.Millisecond) {
		began := time.Now()
		r, err := c.Send(context.Background(), cmd)
		if cmd.FirstTried.IsZero() {
			cmd.FirstTried = began
		}
		switch {
		case err == nil:
			return append([]byte(nil), r.Data...), true
		case client.CodeOf(err) == connect.CodeAborted:
			return nil, false
		case settledCode(err), time.Now().After(end):
			s.fault = fmt.Errorf("%s %s: %w", s.of, name, err)
			return nil, false
		}
	}
}

// add adds one, and checks the answer against the earlier answers.
func (s *sole) add(c *client.Client) {
	answer, known := s.send(c, "add", nil)
	switch {
	case s.fault != nil:
	case !known:
		s.maybe++
	default:
		s.least++
		s.holds("answers", answer)
	}
}

// holds compares a total with the number of executed commands. A transient
// entity may have started again from zero.
func (s *sole) holds(does string, answer []byte) {
	var got struct{ Total int64 }
	err := json.Unmarshal(answer, &got)
	if err == nil && s.of.Type == "fleeting" && got.Total >= 0 && got.Total <= s.least+s.maybe {
		return
	}
	if err != nil || got.Total < s.least || got.Total > s.least+s.maybe {
		s.fault = fmt.Errorf("%s %s %s after %d commands and %d that are not known: %v", s.of, does, answer, s.least, s.maybe, err)
		return
	}
	s.least, s.maybe = got.Total, s.maybe-(got.Total-s.least)
}

// end stops the callers, waits until they know the outcomes of their commands,
// and checks the entities.
func (l *kindsLoad) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.callers.Wait()
	l.check(t)
}

// check reads all entities.
func (l *kindsLoad) check(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for _, s := range l.all {
		r, err := l.c.Query(ctx, client.Query{EntityType: s.of.Type, EntityID: s.of.ID, Name: "total"})
		if err != nil {
			t.Fatalf("%s: %v", s.of, err)
		}
		if s.holds("is", r.Data); s.fault != nil {
			t.Errorf("%v", s.fault)
		}
		if s.least == 0 {
			t.Errorf("%s was never asked", s.of)
		}
	}
}

// ticks checks that each schedule fired exactly once for each due time. It
// returns the number of ticks.
func (l *kindsLoad) ticks(t *testing.T) (n int) {
	t.Helper()
	for _, s := range l.all {
		if s.of.Type != "clock" {
			continue
		}
		var due []int64
		for e, err := range l.c.ReadEvents(t.Context(), client.EventRange{EntityType: s.of.Type, EntityID: s.of.ID}) {
			if err != nil {
				t.Fatalf("%s: %v", s.of, err)
			}
			if e.Type != "ticked" {
				continue
			}
			var tick struct{ Due int64 }
			if err := json.Unmarshal(e.Data, &tick); err != nil {
				t.Fatal(err)
			}
			due = append(due, tick.Due)
		}
		if err := onGrid(due); err != nil {
			t.Errorf("%s: %v", s.of, err)
		}
		n += len(due)
	}
	return n
}

// onGrid checks that each tick was due one period after the previous tick.
func onGrid(due []int64) error {
	for i := 1; i < len(due); i++ {
		if due[i] != due[i-1]+int64(tickEvery) {
			return fmt.Errorf("tick %d of %d was due %v after the one before", i+1, len(due), time.Duration(due[i]-due[i-1]))
		}
	}
	return nil
}

// awaitStarted waits until the always-on entities are in memory without a
// request.
func (l *kindsLoad) awaitStarted(w *world) {
	w.t.Helper()
	for _, s := range l.all {
		if s.of.Type != "kept" && s.of.Type != "single" {
			continue
		}
		w.Await(s.of.String()+" is in memory", func() bool {
			e, err := l.c.Entity(w.t.Context(), s.of.Type, s.of.ID)
			return err == nil && e.GetResident()
		})
	}
}

// TestKindChecksFindFaults checks that the checks that TestChaos makes for
// these entities find a lost or repeated command or tick.
func TestKindChecksFindFaults(t *testing.T) {
	for _, tt := range []struct {
		of                  string
		least, maybe, total int64
		fine                bool
	}{
		{"latest", 3, 0, 3, true}, {"latest", 3, 0, 2, false}, {"latest", 3, 0, 4, false},
		{"kept", 3, 2, 3, true}, {"kept", 3, 2, 5, true}, {"kept", 3, 2, 6, false}, {"kept", 3, 2, 2, false},
		{"fleeting", 3, 0, 1, true}, {"fleeting", 3, 0, 4, false},
	} {
		s := sole{of: dest{tt.of, "x"}, least: tt.least, maybe: tt.maybe}
		s.holds("is", fmt.Appendf(nil, `{"total":%d}`, tt.total))
		if fine := s.fault == nil; fine != tt.fine {
			t.Errorf("%+v: %v", tt, s.fault)
		}
		if s.least+s.maybe != tt.least+tt.maybe {
			t.Errorf("%+v: %d and %d afterwards", tt, s.least, s.maybe)
		}
	}
	const p = int64(tickEvery)
	for due, fine := range map[[3]int64]bool{{p, 2 * p, 3 * p}: true, {p, 3 * p, 4 * p}: false, {p, p, 2 * p}: false, {p, 2 * p, 2*p + 1}: false} {
		if err := onGrid(due[:]); (err == nil) != fine {
			t.Errorf("%v: %v", due, err)
		}
	}
}
