package wire

import (
	"encoding/binary"
	"io"
)

// PrefixBytes is the length of what stands before a message in a stream: a
// byte of flags and the length, big endian.
const PrefixBytes = 5

// Envelopes reads the messages of a stream, all bytes as they are. A prefix is
// returned together with what follows it, so that a sender puts them into one
// frame. It serves one goroutine.
type Envelopes struct {
	Body io.ReadCloser
	// Limit bounds the length of a message; 0 is no bound. Read returns
	// OverLimit instead of a longer one's prefix, and of all that follows.
	Limit     int
	OverLimit error

	prefix [PrefixBytes]byte
	have   int // bytes of prefix that are read
	given  int // bytes of prefix that are handed out
	left   int // bytes of the message that follow
	over   bool
}

// Read implements io.Reader.
func (e *Envelopes) Read(p []byte) (n int, err error) {
	if e.over {
		return 0, e.OverLimit
	}
	if e.left == 0 && e.given == e.have {
		if err := e.next(); err != nil {
			return 0, err
		}
	}
	n = copy(p, e.prefix[e.given:e.have])
	e.given += n
	if p = p[n:]; len(p) == 0 || e.left == 0 {
		return n, nil
	}
	more, err := e.Body.Read(p[:min(len(p), e.left)])
	e.left -= more
	return n + more, err
}

// next reads the prefix of the next message. A prefix cut short is handed out
// as it is, and the end comes after it.
func (e *Envelopes) next() (err error) {
	e.given = 0
	e.have, err = io.ReadFull(e.Body, e.prefix[:])
	if err == io.ErrUnexpectedEOF {
		return nil
	}
	if err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(e.prefix[1:])
	if e.Limit > 0 && uint64(size) > uint64(e.Limit) {
		e.over = true
		return e.OverLimit
	}
	e.left = int(size)
	return nil
}

// Close closes the body.
func (e *Envelopes) Close() error { return e.Body.Close() }
