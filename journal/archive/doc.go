// Package archive defines the file that a cluster's entities are exported to
// and imported from: the cluster's metadata, its modules, and the parts of
// every shard. It reads and writes streams; it opens no files, accesses no
// cluster, and starts no goroutine. FORMAT.md describes the bytes.
package archive

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	magic   = "hostdjx\n"
	version = 1
	// headerBytes: magic, version u8, id [16], crc u32.
	headerBytes = len(magic) + 1 + 16 + 4
	// blockBytes is the size of the frame before a block's payload: kind u8,
	// length u32, crc u32.
	blockBytes = 9
	// maxBlockBytes bounds a block's payload.
	maxBlockBytes = 2 << 20
	// fullBytes is the size at which a block accepts no further part.
	fullBytes = 256 << 10
	// moduleBytes bounds the bytes of a module in one block.
	moduleBytes = 1 << 20
)

// blockKind is the kind of a block.
type blockKind uint8

// Blocks appear in this order: the cluster, modules, for each shard its begin,
// parts and end, and finally the end.
const (
	blockCluster blockKind = 1
	blockModule  blockKind = 2
	blockShard   blockKind = 3
	blockParts   blockKind = 4
	blockDone    blockKind = 5
	blockEnd     blockKind = 255
)

// Errors of reading. Retrying with the same bytes fails again.
var (
	// ErrDamaged: the bytes are not a complete archive.
	ErrDamaged = errors.New("the archive is damaged or truncated")
	// ErrUnsupported: this release does not know a version or a kind in the
	// archive.
	ErrUnsupported = errors.New("the archive was written by a later release")
)

func newDamage(what string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(what, args...))
}

// ID identifies an export. An import carries it, so that it can be
// distinguished from an import of a different file.
type ID = journal.ImportID

// Shard identifies the state of a shard in an archive.
type Shard struct {
	ID    sharding.ShardID
	Index uint64 // of the last log entry that is included
	Term  sharding.Term
	Clock int64 // log clock at Index, unix nanoseconds
}

// Summary describes the content of an archive.
type Summary struct {
	ID       ID
	Bytes    int64
	Modules  uint64
	Shards   uint64
	Entities uint64 // including deleted ones
	Parts    uint64
	// Among the parts: timers that are set, unacknowledged messages, and dead
	// letters.
	Timers, Messages, DeadLetters uint64
	Digest                        [32]byte // SHA-256 of everything before the last block
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
