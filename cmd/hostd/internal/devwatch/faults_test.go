package devwatch

import (
	"bytes"
	"errors"
	"testing"
)

// TestGuestFaultsArePrintedByLine checks that a guest's text is escaped once, line by
// line.
func TestGuestFaultsArePrintedByLine(t *testing.T) {
	var talk bytes.Buffer
	l := &Live{Options: Options{Talk: &talk}}
	l.sayFault(errors.New("the module fails: no \"sum\"\n\tof this\x1b[31m"))
	if want := "the module fails: no \"sum\"\n    | \"    of this\\x1b[31m\"\n"; talk.String() != want {
		t.Errorf("%q, want %q", talk.String(), want)
	}
}
