package eventlog_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/sharding"
)

func checkTimers(t *testing.T, m *eventlog.Machine, id sharding.ShardID, sh *modelShard, rng *rand.Rand) {
	t.Helper()
	by, limit, odd := int64(rng.IntN(50))-12, 1+rng.IntN(30), rng.IntN(2) == 0
	skip := func(e sharding.EntityID, name string, due int64) bool { return odd && name == "t1" }
	var want []journal.Timer
	for e, ent := range sh.entities {
		info, err := m.Info(id, e)
		if err != nil || int(info.Timers) != len(ent.timers) {
			t.Fatalf("%s has %d timers, want %d: %v", e, info.Timers, len(ent.timers), err)
		}
		checkTimersOf(t, m, id, e, ent, limit)
		for _, timer := range ent.timers {
			if !skip(e, timer.Name, timer.Due) {
				want = append(want, timer)
			}
		}
	}
	checkTimerPages(t, m, id, sh, rng)
	slices.SortFunc(want, compareTimers)
	n, next := 0, int64(math.MaxInt64)
	for n < len(want) && n < limit && want[n].Due <= by {
		n++
	}
	if n < len(want) {
		next = want[n].Due
	}
	got, after, err := m.DueTimers(context.Background(), id, by, limit, skip)
	if err != nil || after != next || timersText(got) != timersText(want[:n]) {
		t.Fatalf("timers of shard %d by %d limit %d: next %d, want %d, %v\n got %v\nwant %v", id, by, limit, after, next, err, timersText(got), timersText(want[:n]))
	}
}

// checkTimerPages reads the timers of a shard page by page, either all timers
// or the timers of one entity type.
func checkTimerPages(t *testing.T, m *eventlog.Machine, id sharding.ShardID, sh *modelShard, rng *rand.Rand) {
	t.Helper()
	q := timers.Query{By: int64(rng.IntN(60)) - 12, Limit: 1 + rng.IntN(9)}
	q.Scan = q.Limit + rng.IntN(5)
	if rng.IntN(2) == 0 {
		q.By = math.MaxInt64
	}
	var want, got []journal.Timer
	for e, ent := range sh.entities {
		if q.Type == "" && rng.IntN(4) == 0 {
			q.Type = e.Type
		}
		for _, timer := range ent.timers {
			if timer.Due <= q.By {
				want = append(want, timer)
			}
		}
	}
	want = slices.DeleteFunc(want, func(timer journal.Timer) bool { return q.Type != "" && timer.Entity.Type != q.Type })
	slices.SortFunc(want, compareTimers)
	for {
		page, err := m.TimerPage(t.Context(), id, q)
		if err != nil || len(page.Timers) > q.Limit {
			t.Fatalf("a page of timers of shard %d after %v: %d, %v", id, q.After, len(page.Timers), err)
		}
		if got = append(got, page.Timers...); !page.More {
			break
		}
		if q.After != nil && !q.After.Before(page.Last) {
			t.Fatalf("a page of timers of shard %d ends at %v, before %v", id, page.Last, q.After)
		}
		q.After = &page.Last
	}
	if timersText(got) != timersText(want) {
		t.Fatalf("pages of timers of shard %d, %+v:\n got %v\nwant %v", id, q, timersText(got), timersText(want))
	}
}

func compareTimers(a, b journal.Timer) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), strings.Compare(a.Entity.Type+"\x00"+a.Entity.ID+"\x00"+a.Name, b.Entity.Type+"\x00"+b.Entity.ID+"\x00"+b.Name))
}

func checkTimersOf(t *testing.T, m *eventlog.Machine, id sharding.ShardID, e sharding.EntityID, ent *modelEntity, limit int) {
	t.Helper()
	want := slices.SortedFunc(maps.Values(ent.timers), compareTimers)
	want = want[:min(limit, len(want))]
	got, err := m.TimersOf(t.Context(), id, e, limit)
	if err != nil || timersText(got) != timersText(want) {
		t.Fatalf("timers of %s limit %d: %v\n got %v\nwant %v", e, limit, err, timersText(got), timersText(want))
	}
}

func timersText(timers []journal.Timer) (text string) {
	for _, t := range timers {
		s := "once"
		if t.Schedule != nil {
			s = fmt.Sprintf("%+v", *t.Schedule)
		}
		if t.Trace != nil {
			s += fmt.Sprintf(" set in %x", *t.Trace)
		}
		text += fmt.Sprintf("%v %s %d %s %x %s\n", t.Entity, t.Name, t.Due, t.Command, t.Payload, s)
	}
	return text
}
