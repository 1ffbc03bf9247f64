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
		text += fmt.Sprintf("%v %s %d %s %x %s\n", t.Entity, t.Name, t.Due, t.Command, t.Payload, s)
	}
	return text
}
