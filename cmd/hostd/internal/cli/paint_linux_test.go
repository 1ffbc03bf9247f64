package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hostd/hostd/tests/support/testkit"
)

// Output is coloured only on terminals that support colours, unless the user
// has turned colours off.
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

// A table is coloured on a terminal, and plain elsewhere.
func TestTablesOnTerminals(t *testing.T) {
	screen, keys := testkit.Terminal(t)
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	rows := func(row func(...any)) { row("a", 5) }
	Table(screen, "KEY\tVALUE", rows)
	const end = "<end>" // a read from a terminal may return any part of the output
	if _, err := screen.WriteString(end); err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	for text := make([]byte, 200); !strings.HasSuffix(shown.String(), end); {
		n, err := keys.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		shown.Write(text[:n])
	}
	if got, want := strings.TrimSuffix(shown.String(), end), "\x1b[1mKEY\x1b[0m  \x1b[1mVALUE\x1b[0m\r\na        5\r\n"; got != want {
		t.Errorf("on a terminal: %q", got)
	}
	var file bytes.Buffer
	Table(&file, "KEY\tVALUE", rows)
	if got := file.String(); got != "KEY  VALUE\na    5\n" {
		t.Errorf("in a file: %q", got)
	}
}
