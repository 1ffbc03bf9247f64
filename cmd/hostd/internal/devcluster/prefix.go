package devcluster

import (
	"bytes"
	"io"
)

// maxLineBytes is the length after which a line is broken.
const maxLineBytes = 64 << 10

// prefixWriter writes whole lines with a prefix, so that the output of several
// processes can be distinguished. It is for one writer at a time.
type prefixWriter struct {
	prefix string
	w      io.Writer
	line   []byte // the incomplete last line
}

// Write writes the complete lines of b and keeps the rest.
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
