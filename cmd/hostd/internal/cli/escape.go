package cli

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/hostd/hostd/api/client"
)

// What a guest, or whoever called, has written moves no cursor, colours
// nothing, turns no text around and begins no line of its own on a terminal. In
// JSON the same characters are escapes, which mean the same.

// Clean is text that came from elsewhere, within a line: quoted where not all
// of it can be seen.
func Clean(s string) string {
	if strings.IndexFunc(s, unseen) >= 0 {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// unseen reports whether a character is none that is seen, or stands for a byte
// that is none.
func unseen(r rune) bool { return !unicode.IsPrint(r) && r != '\u00a0' || r == utf8.RuneError }

// escapeJSON escapes what is not seen in JSON text, but for its line breaks.
func escapeJSON(text string) string {
	if strings.IndexFunc(text, unseenInJSON) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if !unseenInJSON(r) {
			out.WriteRune(r)
			continue
		}
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		} else {
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

func unseenInJSON(r rune) bool { return unseen(r) && r != '\n' && r != utf8.RuneError }

// errorText is an error for people. What a node has answered is one line;
// errors of this program may be several.
func errorText(err error) string {
	text := err.Error()
	var failed *client.Error
	var rejected *client.RejectedError
	var cut *client.CutError
	remote := errors.As(err, &failed) || errors.As(err, &rejected) || errors.As(err, &cut)
	var out strings.Builder
	for _, r := range text {
		if unseen(r) && (remote || r != '\n' && r != '\t') {
			quoted := fmt.Sprintf("%+q", r)
			out.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}
