// Chain is an entity that detects every lost, repeated or reordered command,
// because its state is a hash over all of them in order.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// State of a chain: the number of links, and the 32 bytes of the last link's
// hash, which is empty before the first link.
type State struct {
	Sequence int64  `json:"sequence"`
	Hash     []byte `json:"hash,omitempty"`
}

// Link is the command that appends a link.
type Link struct {
	N int64 `json:"n"`
}

// Linked is the event of Link. It contains the command's id, because the id is
// part of the hash.
type Linked struct {
	CommandID string `json:"commandId"`
	N         int64  `json:"n"`
}

// Head is the reply of the command and the query. Hash is lower-case hex.
type Head struct {
	Sequence int64  `json:"sequence"`
	Hash     string `json:"hash"`
}

// Chain declares the entity type.
func Chain() *hostd.Type[State] {
	chain := hostd.Entity[State]("chain", hostd.JSON)

	hostd.Event(chain, "linked", func(s *State, e Linked) {
		s.Sequence++
		s.Hash = next(s.Hash, e.CommandID, e.N)
	})
	hostd.Command(chain, "link", func(c *hostd.Context, s *State, cmd Link) (Head, error) {
		c.Emit(Linked{c.CommandID(), cmd.N})
		return s.head(), nil
	})
	hostd.Query(chain, "head", func(_ *hostd.View, s *State, _ hostd.None) (Head, error) {
		return s.head(), nil
	})
	return chain
}

// next is SHA-256(hash || command id || n as decimal text).
func next(hash []byte, commandID string, n int64) []byte {
	text := append(append([]byte(nil), hash...), commandID...)
	text = strconv.AppendInt(text, n, 10)
	sum := sha256.Sum256(text)
	return append(hash[:0], sum[:]...)
}

func (s *State) head() Head { return Head{s.Sequence, hex.EncodeToString(s.Hash)} }

var _ = hostd.Serve("chain", "1.0.0", Chain())

func main() {}
