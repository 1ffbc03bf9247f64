package cli

import (
	"io"
	"os"
)

// Paint colours text on terminals. The zero value leaves it as it is.
type Paint struct{ on bool }

// NewPaint paints what goes to a terminal that has colours, unless NO_COLOR is
// set (https://no-color.org).
func NewPaint(w io.Writer) Paint {
	return Paint{OnTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Good is for what went well, Bad for a failure, Warn for what wants a look and
// Note for what can be passed over.
func (p Paint) Good(text string) string { return p.colour("32", text) }
func (p Paint) Bad(text string) string  { return p.colour("31", text) }
func (p Paint) Warn(text string) string { return p.colour("33", text) }
func (p Paint) Note(text string) string { return p.colour("2", text) }

// Head is for what stands above others.
func (p Paint) Head(text string) string { return p.colour("1", text) }

func (p Paint) colour(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
