package replay

import (
	"fmt"
	"strings"
	"testing"
)

// spoken is a failure of a guest that wrote something before it failed.
type spoken struct{ words string }

func (spoken) Error() string       { return "hostd_apply: trap: unreachable" }
func (s spoken) LastWords() string { return s.words }

// TestFaultsQuoteTheGuest checks that a fault found by a verification quotes
// what the guest wrote, within bounds.
func TestFaultsQuoteTheGuest(t *testing.T) {
	wrapped := func(words string) string { return withWords(fmt.Errorf("at event 1: %w", spoken{words})) }
	if got := wrapped("panic: no such item"); got != "at event 1: hostd_apply: trap: unreachable; the guest wrote: panic: no such item" {
		t.Error(got)
	}
	if got := wrapped(""); got != "at event 1: hostd_apply: trap: unreachable" {
		t.Error(got)
	}
	got := wrapped(strings.Repeat("x", 5000) + "the end")
	if len(got) > maxWords+100 || !strings.HasSuffix(got, "the end") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
