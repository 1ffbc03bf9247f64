package entity

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

type spoken struct{ text, words string }

func (s *spoken) Error() string     { return s.text }
func (s *spoken) LastWords() string { return s.words }

// TestGuestOutputBeforeFaultIsKept checks that a guest's output is remembered
// only once, and that the beginning and the end of long output are kept.
func TestGuestOutputBeforeFaultIsKept(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.New("no room"), "no room"},
		{&spoken{"trap", ""}, "trap"},
		{fmt.Errorf("load: %w", &spoken{"trap", "panic: a"}), "load: trap; the guest wrote: panic: a"},
		{&spoken{"trap; it wrote panic: a", "panic: a"}, "trap; it wrote panic: a"},
	} {
		var f faultState
		if f.Note(tt.err); f.Last() != tt.want {
			t.Errorf("%q, want %q", f.Last(), tt.want)
		}
	}
	var f faultState
	f.Note(&spoken{"trap", "panic: begin" + strings.Repeat("ö", 4000) + "end"})
	if got := f.Last(); len(got) > keptWords+100 || !strings.Contains(got, "panic: begin") || !strings.HasSuffix(got, "end") || !utf8.ValidString(got) {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	if got := faultAttributes(&spoken{"trap", "panic: a"}, "k", 1); len(got) != 6 || got[5] != "panic: a" {
		t.Errorf("%v", got)
	}
	if got := faultAttributes(errors.New("x")); len(got) != 2 {
		t.Errorf("%v", got)
	}
}
