package entity

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// keptWords bounds the remembered guest output in bytes: its beginning and its
// end.
const keptWords = 1 << 10

// lastWords returns what a guest wrote before it failed, unless err has it
// already.
func lastWords(err error) string {
	var w interface{ LastWords() string }
	if errors.As(err, &w) && !strings.Contains(err.Error(), w.LastWords()) {
		return w.LastWords()
	}
	return ""
}

// faultAttributes returns the attributes of a log message about a fault, after
// others.
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
