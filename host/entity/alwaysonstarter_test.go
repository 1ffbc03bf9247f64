package entity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// fakeExecutor is the executor whose entities an alwaysOnStarter starts. It
// has lists of existing ids per shard.
type fakeExecutor struct {
	now      time.Time
	deferred bool
	crowded  bool
	resident map[string]bool
	fired    []*request.Request
	scans    []*alwaysOnScan
	existing map[string][]string // existing ids by type
	broken   error               // error of every read
}

func (l *fakeExecutor) Now() time.Time                    { return l.now }
func (l *fakeExecutor) IsDeferring(sharding.ShardID) bool { return l.deferred }
func (l *fakeExecutor) IsResident(_ sharding.ShardID, e sharding.EntityID) bool {
	return l.resident[e.ID]
}
func (l *fakeExecutor) IsCrowded() bool         { return l.crowded }
func (l *fakeExecutor) Fire(r *request.Request) { l.fired = append(l.fired, r) }
func (l *fakeExecutor) List(s *alwaysOnScan)    { l.scans = append(l.scans, s) }

func (l *fakeExecutor) ListExisting(_ context.Context, _ sharding.ShardID, entityType, after string, limit int) (ids []string, err error) {
	for _, id := range l.existing[entityType] {
		if id > after && len(ids) < limit {
			ids = append(ids, id)
		}
	}
	return ids, l.broken
}

// starterWorld is an alwaysOnStarter of some types with its executor.
type starterWorld struct {
	*fakeExecutor
	*alwaysOnStarter
	types      []string
	singletons bool // each shard has a singleton
}

func (w *starterWorld) AlwaysOn() []string { return w.types }

func (w *starterWorld) Singletons(shard sharding.ShardID) []sharding.EntityID {
	if !w.singletons {
		return nil
	}
	return []sharding.EntityID{{Type: "a", ID: fmt.Sprint(shard)}, {Type: "unknown", ID: "u"}}
}

func newStarterWorld(opts alwaysOnOptions) *starterWorld {
	w := &starterWorld{fakeExecutor: &fakeExecutor{now: time.Unix(1000, 0), resident: map[string]bool{}, existing: map[string][]string{}}, types: []string{"a"}}
	opts.Types = w
	opts.Logger = slog.New(slog.DiscardHandler)
	w.alwaysOnStarter = newAlwaysOnStarter(opts, w.fakeExecutor)
	return w
}

// turn starts as many entities as possible and completes the reads.
func (w *starterWorld) turn(t *testing.T) {
	w.Start()
	for _, s := range w.scans {
		s.Do(t.Context(), w.fakeExecutor)
		w.OnScan(s)
	}
	w.scans = nil
}

// end completes all starts in progress.
func (w *starterWorld) end(err error) (ids []string) {
	for _, r := range w.fired {
		ids = append(ids, r.Entity.ID)
		r.Result.Err = err
		r.Done.Complete(r)
	}
	w.fired = nil
	return ids
}

func idNames(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%05d", i))
	}
	return ids
}

// TestStarterStartsEachExistingEntityOnce checks that entities are started page by page,
// each once, within the limits of rate and concurrency.
func TestStarterStartsEachExistingEntityOnce(t *testing.T) {
	w := newStarterWorld(alwaysOnOptions{Rate: 100, Listed: true})
	w.existing["a"] = idNames(2*pageSize + 3)
	w.Lead(1)
	var started []string
	for turn := 0; len(started) < len(w.existing["a"]); turn++ {
		if turn > 10_000 {
			t.Fatalf("%d are started, and no more", len(started))
		}
		w.turn(t)
		if len(w.fired) > startsAtOnce {
			t.Fatalf("%d are started at once", len(w.fired))
		}
		started = append(started, w.end(nil)...)
		w.now = w.now.Add(10 * time.Millisecond)
		if most := burst + turn + 1; len(started) > most {
			t.Fatalf("%d are started in %d ms", len(started), 10*turn)
		}
	}
	if !slices.Equal(started, w.existing["a"]) {
		t.Error("some are started twice, or out of order")
	}
}

// TestStartsYieldToRequestsAndMemory checks that nothing is started while
// requests wait or memory is short, and that entities in memory are not
// started.
func TestStartsYieldToRequestsAndMemory(t *testing.T) {
	w := newStarterWorld(alwaysOnOptions{Rate: 1000, Listed: true})
	w.existing["a"] = []string{"in", "out"}
	w.resident["in"] = true
	w.Lead(1)
	for _, why := range []*bool{&w.deferred, &w.crowded} {
		*why = true
		w.turn(t)
		w.turn(t)
		if *why = false; len(w.fired) > 0 {
			t.Fatalf("%d are started all the same", len(w.fired))
		}
	}
	w.turn(t)
	w.turn(t)
	if got := w.end(nil); !slices.Equal(got, []string{"out"}) {
		t.Errorf("started: %v", got)
	}
}

// TestFailedStartsBackOff checks that the wait doubles up to a bound, that
// an entity stopped on request is not retried, and that a success resets the
// wait.
func TestFailedStartsBackOff(t *testing.T) {
	w := newStarterWorld(alwaysOnOptions{Rate: 1000, Listed: true})
	w.existing["a"] = []string{"x"}
	s := w.Lead(1)
	id := sharding.EntityID{Type: "a", ID: "x"}
	w.turn(t)
	w.turn(t)
	fails := errors.New("it traps")
	for n := range 15 {
		if got := w.end(fails); !slices.Equal(got, []string{"x"}) || !s.IsHeldBack(id) {
			t.Fatalf("attempt %d: %v are started, held back %v", n, got, s.IsHeldBack(id))
		}
		wait := min(retry<<min(n, 10), retryMost)
		due := w.now.Add(wait)
		for _, w.now = range []time.Time{w.now, due.Add(-1)} {
			if w.turn(t); len(w.fired) > 0 || w.At() != due.UnixNano() {
				t.Fatalf("%d attempts come before %v are over, and the executor looks again after %v", len(w.fired), wait, time.Unix(0, w.At()).Sub(w.now))
			}
		}
		w.now = due
		w.turn(t)
	}
	if w.end(request.ErrStopped); s.IsHeldBack(id) {
		t.Error("an entity that was stopped is tried again")
	}
	w.StartAgain(s, id)
	w.turn(t)
	w.end(fails)
	w.now = w.now.Add(retry)
	if w.turn(t); len(w.fired) != 1 {
		t.Error("the first failure after a success waits longer than the first of all")
	}
}

// TestUnreadableTypeIsRetried checks that a type whose ids could not be read is
// retried as a whole.
func TestUnreadableTypeIsRetried(t *testing.T) {
	w := newStarterWorld(alwaysOnOptions{Rate: 1000, Listed: true})
	w.existing["a"], w.broken = []string{"x"}, errors.New("damaged")
	w.Lead(1)
	w.turn(t)
	w.broken = nil
	w.turn(t)
	if len(w.fired) > 0 {
		t.Error("what could not be read is started")
	}
	w.now = w.now.Add(retry)
	for range 3 {
		w.turn(t)
	}
	if got := w.end(nil); !slices.Equal(got, []string{"x"}) {
		t.Errorf("started: %v", got)
	}
}

// TestNewAlwaysOnTypesAreStarted checks that the ids of a new type are read
// in all shards that the executor leads, that the ids of a known type are not
// read again, and that singletons are started without reading ids.
func TestNewAlwaysOnTypesAreStarted(t *testing.T) {
	w := newStarterWorld(alwaysOnOptions{Rate: 1000, Listed: true})
	w.existing["a"], w.existing["b"] = []string{"x"}, []string{"y"}
	w.Lead(1)
	w.turn(t)
	w.turn(t)
	w.end(nil)
	w.types = []string{"a", "b"}
	w.UpdateTypes()
	w.turn(t)
	w.turn(t)
	if got := w.end(nil); !slices.Equal(got, []string{"y"}) {
		t.Errorf("of a new type: %v", got)
	}
	w = newStarterWorld(alwaysOnOptions{Rate: 1000})
	w.singletons = true
	w.existing["a"] = []string{"x"}
	w.Lead(3)
	w.turn(t)
	if got := w.end(nil); !slices.Equal(got, []string{"3"}) {
		t.Errorf("without a list: %v", got)
	}
}

// TestLostShardStartsNoEntities checks that once the leadership has ended, no
// entity is started, whether its id was read before or is in a scan that
// returns late.
func TestLostShardStartsNoEntities(t *testing.T) {
	w := newStarterWorld(alwaysOnOptions{Rate: 1000, Listed: true})
	w.existing["a"] = []string{"x", "y"}
	s := w.Lead(1)
	w.Start()
	scan := w.scans[0]
	scan.Do(t.Context(), w.fakeExecutor)
	w.scans = nil
	w.Drop(s)
	w.OnScan(scan)
	w.turn(t)
	if len(w.fired) > 0 {
		t.Error("what was read of a lost shard is started")
	}
	s = w.Lead(1)
	w.turn(t)
	w.turn(t)
	w.Drop(s)
	if w.end(errors.New("lost")); s.IsHeldBack(sharding.EntityID{Type: "a", ID: "x"}) {
		t.Error("an entity of a lost shard is held back")
	}
	w.now = w.now.Add(time.Hour)
	if w.turn(t); len(w.fired) > 0 {
		t.Error("an entity of a lost shard is tried again")
	}
}
