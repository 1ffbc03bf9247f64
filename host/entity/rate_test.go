package entity

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
)

// TestCommandOverTypeRateIsRejected checks that a command beyond the rate writes nothing and
// returns the time to wait, while duplicates and queries are still answered.
func TestCommandOverTypeRateIsRejected(t *testing.T) {
	w := quiet(t)
	w.typ.Rate = NewRate(2)
	w.tell("a") // the command's id is 1
	w.tell("b")
	records := len(w.log)
	var limited *request.RateLimitedError
	if res := w.askOf("a", request.Command, "add", "another"); !errors.As(res.Err, &limited) || !errors.Is(res.Err, request.ErrBusy) || limited.RetryAfter != time.Second/2 {
		t.Errorf("the third command of a second gave %v", res.Err)
	}
	if len(w.log) != records {
		t.Error("it left a record")
	}
	if res := w.askOf("a", request.Query, "get", ""); res.Err != nil {
		t.Errorf("a query gave %v", res.Err)
	}
	if res := w.askOf("a", request.Command, "add", "1"); res.Err != nil || !res.Duplicate {
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

// TestTypeWithMemoryLimitHasOwnInstances checks that a type with memory
// limits has its own instances, of which a new one is opened when the others
// are full. If no further instance is possible, the entity that has been idle
// longest is evicted.
func TestTypeWithMemoryLimitHasOwnInstances(t *testing.T) {
	w := quiet(t)
	full := false
	w.typ.OwnInstances, w.typ.FullAt, w.typ.Memory = true, 4, roomFunc(func() bool { return !full })
	for i := range 12 {
		w.tell(strconv.Itoa(i))
		w.now = w.now.Add(time.Second)
	}
	if n := len(w.core.residents.pools.All()); n != 4 {
		t.Fatalf("12 entities are in %d instances, want 4 of 3", n)
	}
	full = true
	w.tell("0")
	for i := range 3 {
		w.now = w.now.Add(time.Second)
		w.tell("new" + strconv.Itoa(i))
	}
	if n, shed := len(w.core.residents.pools.All()), w.core.stats.Shed; n != 4 || shed != 3 {
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
