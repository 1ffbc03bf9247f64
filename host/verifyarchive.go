package host

import (
	"encoding/hex"
	"io"

	"github.com/hostd/hostd/journal/archive"
)

// ArchiveSummary describes the contents of an export file.
type ArchiveSummary struct {
	Bytes                            int64
	Entities, Shards, Modules, Parts uint64
	Timers, Sends, DeadLetters       uint64 // pending timers, messages in outboxes, and dead letters
	Digest                           string // SHA-256 up to the last block, in hex
}

// VerifyArchive checks an export file: every checksum, the order of its blocks,
// and the chain of each entity's events. It calls progress with the number of
// bytes read.
func VerifyArchive(r io.Reader, progress func(bytes int64)) (ArchiveSummary, error) {
	sum, err := archive.Verify(r, progress)
	return ArchiveSummary{
		Bytes: sum.Bytes, Entities: sum.Entities, Shards: sum.Shards, Modules: sum.Modules, Parts: sum.Parts,
		Timers: sum.Timers, Sends: sum.Messages, DeadLetters: sum.DeadLetters,
		Digest: hex.EncodeToString(sum.Digest[:]),
	}, err
}
