package wire

import (
	"encoding/binary"
	"io"
)

// PrefixBytes is the length of the prefix of a message in a stream: a byte of
// flags and the length, big endian.
const PrefixBytes = 5

// Envelopes reads the messages of a stream and returns all bytes unchanged. It
// returns a prefix together with the bytes that follow it, so that a sender
// puts both into one frame. It must be used by one goroutine.
type Envelopes struct {
	Body io.ReadCloser
	// Limit is the maximum length of a message; 0 means no limit. If a message is
	// longer, Read returns OverLimit instead of its prefix, and from then on
	// returns the same error.
	Limit     int
	OverLimit error

	prefix [PrefixBytes]byte
	have   int // number of bytes of prefix that were read
	given  int // number of bytes of prefix that were returned
	left   int // number of bytes of the message that follow
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

// next reads the prefix of the next message. If the prefix is truncated, Read
// returns the bytes that there are, and then the end of the stream.
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
