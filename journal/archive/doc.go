// Package archive is the file that a cluster's entities are exported to and
// imported from: what the cluster has of metadata and modules, and the parts of
// every shard. It reads and writes streams; it never looks for files, knows no
// cluster, and starts no goroutine. FORMAT.md has the bytes.
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
	// blockBytes is the frame before a block's payload: kind u8, length u32, crc
	// u32.
	blockBytes = 9
	// MaxBlockBytes bounds a block's payload.
	MaxBlockBytes = 2 << 20
	// fullBytes is where a block takes no further part.
	fullBytes = 256 << 10
	// moduleBytes is the most of a module in one block.
	moduleBytes = 1 << 20
)

// blockKind says what a block of the file holds.
type blockKind uint8

// The order of blocks: a cluster, modules, for each shard its begin, parts and
// end, then the end.
const (
	blockCluster blockKind = 1
	blockModule  blockKind = 2
	blockShard   blockKind = 3
	blockParts   blockKind = 4
	blockDone    blockKind = 5
	blockEnd     blockKind = 255
)

// Errors of reading. Neither is worth a retry with the same bytes.
var (
	// ErrDamaged: the bytes are not those of a whole archive.
	ErrDamaged = errors.New("the archive is damaged or cut short")
	// ErrUnsupported: a version or a kind that this release does not know.
	ErrUnsupported = errors.New("the archive is of a later release")
)

func damaged(what string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(what, args...))
}

// ID names an export. An import of it carries it, to be told from that of
// another file.
type ID = journal.ImportID

// Shard says what a shard's parts are of.
type Shard struct {
	ID    sharding.ShardID
	Index uint64 // of its log: the last entry that is in
	Term  sharding.Term
	Clock int64 // the log clock there, unix nanoseconds
}

// Summary is what an archive holds.
type Summary struct {
	ID       ID
	Bytes    int64
	Modules  uint64
	Shards   uint64
	Entities uint64 // deleted ones too
	Parts    uint64
	// Of the parts: timers that are set, messages that have not been acknowledged
	// and dead letters.
	Timers, Messages, DeadLetters uint64
	Digest                        [32]byte // SHA-256 of all before the last block
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
