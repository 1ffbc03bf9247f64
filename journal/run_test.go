package journal_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/hostd/hostd/journal"
)

// TestRunStatusRoundTrips checks that an encoded status decodes to the same
// value, and that a truncated or contradictory status is rejected.
func TestRunStatusRoundTrips(t *testing.T) {
	for _, s := range []journal.RunStatus{
		{State: journal.RunRunning, Steps: 2, Waits: []string{"wait approval", "", "sleep"}},
		{State: journal.RunCompleted, Steps: 1<<32 - 1},
		{State: journal.RunFailed, Code: "terminated"},
	} {
		data := journal.AppendRunStatus(nil, &s)
		if got, err := journal.DecodeRunStatus(data); err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%+v is read as %+v, %v", s, got, err)
		}
		for n := range len(data) {
			got, err := journal.DecodeRunStatus(data[:n])
			whole := err == nil && len(got.Waits) < len(s.Waits) // the data ends after a wait
			if !whole && !errors.Is(err, journal.ErrDamaged) {
				t.Errorf("%d bytes of %+v are read as %+v, %v", n, s, got, err)
			}
		}
	}
	for name, data := range map[string][]byte{
		"no state":             {0, 0, 0, 0, 0, 0},
		"an unknown state":     {4, 0, 0, 0, 0, 0},
		"a failure, no code":   {3, 0, 0, 0, 0, 0},
		"a code, no failure":   {1, 0, 0, 0, 0, 1, 'x'},
		"more than eight wait": {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		if _, err := journal.DecodeRunStatus(data); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
