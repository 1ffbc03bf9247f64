package host

import (
	"encoding/hex"
	"io"

	"github.com/hostd/hostd/journal/archive"
)

// ArchiveSummary is what the file of an export holds.
type ArchiveSummary struct {
	Bytes                            int64
	Entities, Shards, Modules, Parts uint64
	Timers, Sends, DeadLetters       uint64 // that are set, on their way, and dead
	Digest                           string // SHA-256 up to the last block, hex
}

// VerifyArchive reads the file of an export for what is wrong with it: every
// checksum, the order of its blocks, and the chain of each entity's events.
// progress is told of bytes as they are read.
func VerifyArchive(r io.Reader, progress func(bytes int64)) (ArchiveSummary, error) {
	sum, err := archive.Verify(r, progress)
	return ArchiveSummary{
		Bytes: sum.Bytes, Entities: sum.Entities, Shards: sum.Shards, Modules: sum.Modules, Parts: sum.Parts,
		Timers: sum.Timers, Sends: sum.Messages, DeadLetters: sum.DeadLetters,
		Digest: hex.EncodeToString(sum.Digest[:]),
	}, err
}
