package guest

import (
	"bytes"
	"errors"
	"strings"
)

// maxWords bounds the guest output in a Fault, in bytes.
const maxWords = 4 << 10

// lastWords keeps the end of what a guest writes to standard output and error,
// and of its error log lines, during a call. The text of a panic arrives there
// before the trap.
type lastWords struct {
	text []byte // shorter than 2*maxWords
}

func (w *lastWords) add(data []byte) {
	data = data[max(0, len(data)-maxWords):]
	if len(w.text)+len(data) > 2*maxWords { // moves the text at most once per maxWords written bytes
		w.text = append(w.text[:0], w.text[len(w.text)-maxWords:]...)
	}
	w.text = append(w.text, data...)
}

// begin discards the output of the previous call.
func (w *lastWords) begin() { w.text = w.text[:0] }

// displayText returns the text for people. The text is hostile, so invalid UTF-8 and
// control characters are replaced.
func (w *lastWords) displayText() string {
	text := bytes.ToValidUTF8(bytes.TrimSpace(w.text[max(0, len(w.text)-maxWords):]), []byte("?"))
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return '?'
		}
		return r
	}, string(text))
}

// explain adds the guest's output during the call to a fault.
func (g *Instance) explain(err error) {
	var fault *Fault
	if errors.As(err, &fault) {
		fault.words, fault.exposed = g.words.displayText(), g.module.engine.exposeErrors
	}
}

// LastWords returns the end of the guest's output in the failed call, such as
// the text of a panic: at most 4 KiB of what it wrote to standard output and
// error or logged as errors. It may contain the input of the guest.
func (f *Fault) LastWords() string { return f.words }
