package command

import (
	"crypto/rand"
	"encoding/hex"
	"sync"

	"github.com/hostd/hostd/journal"
)

// IDs names commands whose callers did not: 16 random bytes in hex.
// Randomness is drawn 1 KiB at a time. It is safe for concurrent use.
type IDs struct{ pool sync.Pool }

// randomBytes are random bytes that were read ahead, of which some are left.
type randomBytes struct {
	buf  [1024]byte
	left int
}

// Next makes a name.
func (c *IDs) Next() journal.CommandID {
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
