package cli

import (
	"io"
	"os"
)

// Paint colours text on terminals. The zero value does not colour.
type Paint struct{ on bool }

// NewPaint returns a Paint that colours if w is a terminal with colours and
// NO_COLOR is not set (https://no-color.org).
func NewPaint(w io.Writer) Paint {
	return Paint{OnTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Good marks a success, Bad a failure, Warn something that needs attention, and
// Note something unimportant.
func (p Paint) Good(text string) string { return p.colour("32", text) }
func (p Paint) Bad(text string) string  { return p.colour("31", text) }
func (p Paint) Warn(text string) string { return p.colour("33", text) }
func (p Paint) Note(text string) string { return p.colour("2", text) }

// Head marks a heading.
func (p Paint) Head(text string) string { return p.colour("1", text) }

func (p Paint) colour(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
