package wal

import "sync/atomic"

// Stats counts the work of a log since it was opened.
type Stats struct {
	// Records and PayloadBytes count appended records.
	Records, PayloadBytes uint64
	// WrittenBytes counts the bytes written to segment files, including headers
	// and padding.
	WrittenBytes uint64
	// Writes and Syncs count the writes and syncs of segment files. MarkSyncs
	// counts the syncs of the mark.
	Writes, Syncs, MarkSyncs uint64
	// SegmentsCreated counts new files, SegmentsRecycled reused files, and
	// SegmentsRemoved deleted files.
	SegmentsCreated, SegmentsRecycled, SegmentsRemoved uint64
}

// counters hold the values that Stats returns.
type counters struct {
	records, payloadBytes, writtenBytes atomic.Uint64
	writes, syncs, markSyncs            atomic.Uint64
	created, recycled, removed          atomic.Uint64
}

// Stats returns the counters. It may be called from any goroutine.
func (l *Log) Stats() Stats {
	c := &l.counters
	return Stats{
		Records:          c.records.Load(),
		PayloadBytes:     c.payloadBytes.Load(),
		WrittenBytes:     c.writtenBytes.Load(),
		Writes:           c.writes.Load(),
		Syncs:            c.syncs.Load(),
		MarkSyncs:        c.markSyncs.Load(),
		SegmentsCreated:  c.created.Load(),
		SegmentsRecycled: c.recycled.Load(),
		SegmentsRemoved:  c.removed.Load(),
	}
}
