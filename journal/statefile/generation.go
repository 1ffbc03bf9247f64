package statefile

import (
	"io"

	"github.com/hostd/hostd/sharding"
)

// Generation is the current generation of a shard on this node, as recorded in
// the log. The store's keys contain its number. A new generation starts with
// each replica that is created after another replica was removed, and with each
// installed snapshot.
type Generation struct {
	Shard sharding.ShardID
	// Generation is the number of the current generation or, if Gone is set, of
	// the next generation.
	Generation uint32
	// Gone means that no replica of the shard is on this node.
	Gone bool
	// Install is the snapshot that the generation started from, or nil if there
	// is no such snapshot or the log knows that it is no longer needed.
	Install *Install
}

// Install is a received snapshot whose install record is in the log.
type Install struct {
	Index uint64
	Term  sharding.Term // of the entry at Index
	// Digest is the digest of the stream, see Trailer.
	Digest Digest
	// Stream is the stream if it is already open. The receiver closes it.
	Stream io.ReadCloser
	// Open opens the stream if Stream is nil. It may be called more than once.
	Open func() (io.ReadCloser, error)
}

// Pinned is a fixed state of a shard, which a state machine keeps so that it
// can be sent to another node.
type Pinned interface {
	Header() Header
	// Stream returns the state's stream, for one reader. Closing the stream
	// releases the state, so Close must not be called as well.
	Stream() io.ReadCloser
	// Close releases a state that was not streamed.
	Close() error
}
