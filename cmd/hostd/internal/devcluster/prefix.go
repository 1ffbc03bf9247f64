package devcluster

import (
	"bytes"
	"io"
)

// maxLineBytes is where a line without an end is cut.
const maxLineBytes = 64 << 10

// prefixWriter writes whole lines with a prefix, so that those of several
// processes can be told apart. It is for one writer at a time.
type prefixWriter struct {
	prefix string
	w      io.Writer
	line   []byte // the beginning of a line that has not ended
}

// Write keeps what is behind the last end of a line.
func (p *prefixWriter) Write(b []byte) (int, error) {
	var out []byte
	for rest := b; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		rest = after
		p.line = append(p.line, line...)
		if ended || len(p.line) >= maxLineBytes {
			out = append(append(append(out, p.prefix...), p.line...), '\n')
			p.line = p.line[:0]
		}
	}
	if len(out) > 0 {
		if _, err := p.w.Write(out); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}
