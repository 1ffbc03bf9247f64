package rpc

import (
	"crypto/rand"
	"encoding/hex"
	"sync"

	"github.com/hostd/hostd/journal"
)

// commandIDs names commands whose callers did not: 16 random bytes in hex.
// Randomness is drawn 1 KiB at a time. It is safe for concurrent use.
type commandIDs struct{ pool sync.Pool }

type randomBytes struct {
	buf  [1024]byte
	left int
}

func (c *commandIDs) next() journal.CommandID {
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
