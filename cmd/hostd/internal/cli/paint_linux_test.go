package cli

import (
	"bytes"
	"testing"

	"github.com/hostd/hostd/tests/support/testkit"
)

// Colours are for terminals that have them, and for whom they do not disturb.
func TestPaint(t *testing.T) {
	screen, _ := testkit.Terminal(t)
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	const red = "\x1b[31mbad\x1b[0m"
	if got := NewPaint(screen).Bad("bad"); got != red {
		t.Errorf("on a terminal: %q", got)
	}
	if got := NewPaint(&bytes.Buffer{}).Bad("bad"); got != "bad" {
		t.Errorf("in a file: %q", got)
	}
	for name, value := range map[string]string{"NO_COLOR": "1", "TERM": "dumb"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if got := NewPaint(screen).Bad("bad"); got != "bad" {
				t.Errorf("with %s=%s: %q", name, value, got)
			}
		})
	}
}
