package statefile

import (
	"io"

	"github.com/hostd/hostd/sharding"
)

// Generation is what a node's log says of a shard: which of its generations on
// this node is the present one. The store's keys hold its number; one begins
// with each replica that is created after another was removed, and with each
// snapshot that is installed.
type Generation struct {
	Shard sharding.ShardID
	// Generation is the number of the present one or, if Gone, of the next.
	Generation uint32
	// Gone: no replica of the shard is on this node.
	Gone bool
	// Install is the snapshot that the generation began with, nil for none or when
	// the log knows that it is not needed any more.
	Install *Install
}

// Install is a received snapshot that the log has made current.
type Install struct {
	Index uint64
	Term  sharding.Term // of the entry at Index
	// Digest is the stream's, see Trailer.
	Digest Digest
	// Stream is the stream, if it is open already; closing it is the
	// receiver's.
	Stream io.ReadCloser
	// Open opens the stream where Stream is nil. It may be called more than
	// once.
	Open func() (io.ReadCloser, error)
}

// Pinned is a shard's state at one moment, which a state machine holds to be
// sent to another node.
type Pinned interface {
	Header() Header
	// Stream returns the state's stream, for one reader. It takes the place of
	// Close: the stream's Close releases the state.
	Stream() io.ReadCloser
	// Close releases a state that is not streamed.
	Close() error
}
