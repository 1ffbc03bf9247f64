package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
)

func TestPayloads(t *testing.T) {
	for _, tt := range []struct{ in, text, json string }{
		{`{ "a": 12345678901234567890 }`, `{"a":12345678901234567890}`, `{"json":{"a":12345678901234567890}}`},
		{"", "", "{}"},
		{"\x00\xff", `"\x00\xff"`, `{"data":"AP8="}`},
		{"\"\xff\"", `"\"\xff\""`, `{"data":"Iv8i"}`}, // valid JSON for Go, but not UTF-8
	} {
		p := NewPayload([]byte(tt.in))
		var out strings.Builder
		if err := WriteJSON(&out, p, ""); err != nil {
			t.Fatal(err)
		}
		if p.Text() != tt.text || out.String() != tt.json+"\n" {
			t.Errorf("%q: %q and %s", tt.in, p.Text(), out.String())
		}
	}
}

// Text from a module or a user must not move the cursor of a terminal.
func TestCleanQuotesControlCharacters(t *testing.T) {
	for in, want := range map[string]string{"plain ü": "plain ü", "a\x1b[2J": `"a\x1b[2J"`, "a\nb": `"a\nb"`, "\u009b": `"\u009b"`, "a\u202eb": `"a\u202eb"`, "\x7f": `"\x7f"`, "\xff": `"\xff"`} {
		if got := Clean(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestJSONIsEscaped(t *testing.T) {
	in := map[string]string{"message": "a\x1b]0;owned\x07\u009b31m\u202e\U000e0001ü\n"}
	var out strings.Builder
	if err := WriteJSON(&out, in, "  "); err != nil {
		t.Fatal(err)
	}
	if want := "{\n  \"message\": \"a\\u001b]0;owned\\u0007\\u009b31m\\u202e\\udb40\\udc01ü\\n\"\n}\n"; out.String() != want {
		t.Errorf("got %s, want %s", out.String(), want)
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back["message"] != in["message"] {
		t.Errorf("it means %q, %v", back["message"], err)
	}
}

// TestGuestTextCannotForgeOutput checks that no line of a guest's text looks like
// output of this program, and that it does not move the cursor.
func TestGuestTextCannotForgeOutput(t *testing.T) {
	for in, want := range map[string]string{
		"guest fault: panic: no\n\ngoroutine 1:\n\tmain.go:3\n": "internal: guest fault: panic: no\n    | goroutine 1:\n    |     main.go:3",
		"a\nhostd: done\n":      "internal: a\n    | hostd: done",
		"a\r\nhostd: b\x1b[2J":  `internal: a\r` + "\n" + `    | hostd: b\x1b[2J`,
		"a\u2028b\u0085c\vd\fe": `internal: a\u2028b\u0085c\vd\fe`,
		"one line":              "internal: one line",
	} {
		if got := errorText(fmt.Errorf("send: %w", &client.Error{Code: connect.CodeInternal, Message: in})); got != "send: "+want {
			t.Errorf("%q: got\n%s\nwant\n%s", in, got, want)
		}
	}
	if got := Quote("a\n\n\tb\x1b\n"); got != "a\n    | "+`"    b\x1b"` {
		t.Errorf("quoted: %s", got)
	}
	if got := Quote(""); got != "" {
		t.Errorf("nothing is quoted as %q", got)
	}
	if got := errorText(errors.New("a\n\tb\x1b")); got != "a\n\tb\\x1b" {
		t.Errorf("an error of this program: %q", got)
	}
}
