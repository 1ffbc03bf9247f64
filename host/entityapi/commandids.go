package entityapi

import (
	"crypto/rand"
	"encoding/hex"
	"sync"

	"github.com/hostd/hostd/journal"
)

// commandIDs makes command ids for callers that give none: 16 random bytes in hex. It
// reads randomness in blocks of 1 KiB. It is safe for concurrent use.
type commandIDs struct{ pool sync.Pool }

// randomBytes is a block of random bytes that is used from its end; buf[:left]
// is not used yet.
type randomBytes struct {
	buf  [1024]byte
	left int
}

// Next makes an id.
func (c *commandIDs) Next() journal.CommandID {
	src, _ := c.pool.Get().(*randomBytes)
	if src == nil {
		src = new(randomBytes)
	}
	if src.left == 0 {
		rand.Read(src.buf[:]) // never fails
		src.left = len(src.buf)
	}
	src.left -= 16
	var text [32]byte
	hex.Encode(text[:], src.buf[src.left:src.left+16])
	c.pool.Put(src)
	return journal.CommandID(text[:])
}
