package entity

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// keptWords bounds the guest output that is remembered for a fault, in bytes.
// Of longer output, the beginning and the end are kept.
const keptWords = 1 << 10

// lastWords returns the output that a guest wrote before it failed, unless the
// text of err contains it already.
func lastWords(err error) string {
	var w interface{ LastWords() string }
	if errors.As(err, &w) && !strings.Contains(err.Error(), w.LastWords()) {
		return w.LastWords()
	}
	return ""
}

// faultAttributes returns others with the attributes of a log message about a
// fault appended.
func faultAttributes(err error, others ...any) []any {
	others = append(others, "error", err)
	if words := lastWords(err); words != "" {
		others = append(others, "guest_wrote", words)
	}
	return others
}

// text returns the text that is stored for an error.
func text(err error) string {
	words := lastWords(err)
	switch {
	case words == "":
		return err.Error()
	case len(words) > keptWords:
		words = strings.ToValidUTF8(words[:keptWords/2], "") + "\n...\n" + tail(words, keptWords/2)
	}
	return err.Error() + "; the guest wrote: " + words
}

// tail returns the end of a text, at most n bytes.
func tail(text string, n int) string {
	at := len(text) - n
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return text[at:]
}
