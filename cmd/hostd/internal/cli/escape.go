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

// CleanLines are the lines of text that came from elsewhere, such as the stack
// of a panic: at least one, of the others those in which something stands.
func CleanLines(s string) []string {
	lines := linesOf(s)
	for i := range lines {
		lines[i] = Clean(lines[i])
	}
	return lines
}

// linesOf are the lines of text, without empty ones behind the first and
// without tabs.
func linesOf(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); strings.TrimSpace(line) != "" || len(lines) == 0 {
			lines = append(lines, strings.ReplaceAll(line, "\t", "    "))
		}
	}
	if len(lines) == 0 {
		return []string{""}
	}
	return lines
}

// Quote is text from elsewhere within what is printed: the lines behind its
// first are marked, so that none is taken for another's.
func Quote(s string) string { return strings.Join(CleanLines(s), "\n"+quoteBegin) }

// quoteBegin begins the lines of an answer behind its first: what a guest has
// written, such as the stack of a panic, is read by lines and is known for that.
const quoteBegin = "    | "

// errorText is an error for people. What a node has answered begins no line by
// itself; errors of this program may.
func errorText(err error) string {
	text := err.Error()
	var failed *client.Error
	var rejected *client.RejectedError
	var cut *client.CutError
	remote := errors.As(err, &failed) || errors.As(err, &rejected) || errors.As(err, &cut)
	if remote {
		lines := linesOf(text)
		text = strings.Join(lines, "\n"+quoteBegin)
	}
	var out strings.Builder
	for _, r := range text {
		if unseen(r) && r != '\n' && (remote || r != '\t') {
			quoted := fmt.Sprintf("%+q", r)
			out.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}
