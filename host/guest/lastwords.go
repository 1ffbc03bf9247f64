package guest

import (
	"bytes"
	"errors"
	"strings"
)

// maxWords bounds what a Fault tells of what the guest wrote.
const maxWords = 4 << 10

// lastWords keeps the end of what a guest writes to standard output and error
// in a call, and logs as errors: the text of a panic comes there before the
// trap.
type lastWords struct {
	text []byte // less than two times maxWords
}

func (w *lastWords) add(data []byte) {
	data = data[max(0, len(data)-maxWords):]
	if len(w.text)+len(data) > 2*maxWords { // seldom: what a guest writes one byte at a time is moved once in maxWords
		w.text = append(w.text[:0], w.text[len(w.text)-maxWords:]...)
	}
	w.text = append(w.text, data...)
}

// begin forgets what was written in the call before.
func (w *lastWords) begin() { w.text = w.text[:0] }

// said is the text for people. It is hostile: what is no text in it is
// replaced.
func (w *lastWords) said() string {
	text := bytes.ToValidUTF8(bytes.TrimSpace(w.text[max(0, len(w.text)-maxWords):]), []byte("?"))
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return '?'
		}
		return r
	}, string(text))
}

// explain has a fault tell what the guest wrote in its call.
func (g *Instance) explain(err error) {
	var fault *Fault
	if errors.As(err, &fault) {
		fault.words, fault.told = g.words.said(), g.module.engine.tellFaults
	}
}

// LastWords is the end of what the guest wrote to standard output and error, or
// logged as errors, in the call that failed, at most 4 KiB, such as the text of
// a panic. It may hold what the guest was given.
func (f *Fault) LastWords() string { return f.words }
