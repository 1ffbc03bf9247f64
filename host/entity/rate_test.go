package entity

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestRate(t *testing.T) {
	if NewRate(0) != nil || NewRate(mostRate) != nil || (*Rate)(nil).take(5) != 0 {
		t.Error("no rate bounds something")
	}
	second := int64(time.Second)
	for _, perSecond := range []int64{1, 3, 1000} {
		r := NewRate(perSecond)
		now := int64(1_000_000) * second
		burst := func() (n int64) {
			for r.take(now) == 0 {
				n++
			}
			return n
		}
		if n := burst(); n != perSecond {
			t.Errorf("%d a second: %d at once", perSecond, n)
		}
		wait := r.take(now)
		if want := time.Second / time.Duration(perSecond); wait <= 0 || wait > want {
			t.Errorf("%d a second: wait %v, want up to %v", perSecond, wait, want)
		}
		if now += int64(wait); r.take(now) != 0 || r.take(now) == 0 {
			t.Errorf("%d a second: after the wait there is not just one", perSecond)
		}
		if now += 100 * second; burst() != perSecond {
			t.Errorf("%d a second: a pause is kept for more than a second, or less", perSecond)
		}
		if now -= 1000 * second; r.take(now) != 0 {
			t.Errorf("%d a second: a clock that was set back stops everything", perSecond)
		}
	}
}

// TestRateIsShared: lanes that take at once get no more together than one.
func TestRateIsShared(t *testing.T) {
	r := NewRate(5000)
	var taken atomic.Int64
	var lanes sync.WaitGroup
	for range 4 {
		lanes.Go(func() {
			for range 5000 {
				if r.take(int64(time.Hour)) == 0 {
					taken.Add(1)
				}
			}
		})
	}
	if lanes.Wait(); taken.Load() != 5000 {
		t.Errorf("%d of 5000 were taken", taken.Load())
	}
}

// TestRateOfAType: what is beyond the rate writes nothing and says when to
// come again; what is remembered is answered all the same, and queries are.
func TestRateOfAType(t *testing.T) {
	w := quiet(t)
	w.typ.Rate = NewRate(2)
	w.tell("a") // command 1
	w.tell("b")
	records := len(w.log)
	var limited *RateLimitedError
	if res := w.send("a", Command, "add", "another"); !errors.As(res.Err, &limited) || !errors.Is(res.Err, ErrBusy) || limited.RetryAfter != time.Second/2 {
		t.Errorf("the third command of a second gave %v", res.Err)
	}
	if len(w.log) != records {
		t.Error("it left a record")
	}
	if res := w.send("a", Query, "get", ""); res.Err != nil {
		t.Errorf("a query gave %v", res.Err)
	}
	if res := w.send("a", Command, "add", "1"); res.Err != nil || !res.Duplicate {
		t.Errorf("a known command gave %+v", res)
	}
	if w.now = w.now.Add(time.Second / 2); w.core.stats.RateLimited != 1 {
		t.Errorf("%d refusals are counted", w.core.stats.RateLimited)
	}
	w.tell("a")
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}

// TestOwnInstances: a type with bounds of memory has instances of its own, one
// after the other as they fill, and where there may not be another one the
// entity leaves that was idle longest; another revision has others.
func TestOwnInstances(t *testing.T) {
	w := quiet(t)
	full := false
	w.typ.OwnInstances, w.typ.FullAt, w.typ.NoRoom = true, 4, func() bool { return full }
	for i := range 12 {
		w.tell(strconv.Itoa(i))
		w.now = w.now.Add(time.Second)
	}
	if n := len(w.core.instances); n != 4 {
		t.Fatalf("12 entities are in %d instances, want 4 of 3", n)
	}
	full = true
	w.tell("0")
	for i := range 3 {
		w.now = w.now.Add(time.Second)
		w.tell("new" + strconv.Itoa(i))
	}
	if n, shed := len(w.core.instances), w.core.stats.Shed; n != 4 || shed != 3 {
		t.Errorf("without room there are %d instances, and %d entities have left, want 4 and 3", n, shed)
	}
	loads := w.core.stats.Loads
	if w.tell("0"); w.core.stats.Loads != loads {
		t.Error("the entity that was asked for last has left")
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}
