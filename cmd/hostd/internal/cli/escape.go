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

// Text that guests or callers have written is escaped on a terminal, so that it
// cannot move the cursor, set colours, reverse the direction of text or start a
// line. In JSON the same characters become escapes, which have the same
// meaning.

// Clean returns untrusted text for use within a line: quoted if some of it is
// invisible.
func Clean(s string) string {
	if strings.IndexFunc(s, unseen) >= 0 {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// unseen reports whether a character is invisible, or replaces an invalid byte.
func unseen(r rune) bool { return !unicode.IsPrint(r) && r != '\u00a0' || r == utf8.RuneError }

// escapeJSON escapes the invisible characters in JSON text, except line breaks.
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

// CleanLines returns the lines of untrusted text, such as the stack of a panic,
// without empty lines after the first. There is at least one.
func CleanLines(s string) []string {
	lines := linesOf(s)
	for i := range lines {
		lines[i] = Clean(lines[i])
	}
	return lines
}

// linesOf returns the lines of text, with tabs replaced and without empty lines
// after the first.
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

// Quote returns untrusted text to be printed inside other text. All lines after
// the first are marked, so that they cannot be mistaken for the program's
// output.
func Quote(s string) string { return strings.Join(CleanLines(s), "\n"+quoteBegin) }

// quoteBegin marks the lines after the first of untrusted text, such as the
// stack of a panic that a guest has written, because people and programs read
// output line by line.
const quoteBegin = "    | "

// errorText returns an error for people. Text that a node sent cannot start a
// new line; errors of this program can.
func errorText(err error) string {
	text := err.Error()
	var failed *client.Error
	var rejected *client.RejectedError
	var cut *client.TruncatedError
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
