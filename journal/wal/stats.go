package wal

import "sync/atomic"

// Stats counts what a log did since it was opened.
type Stats struct {
	// Records and PayloadBytes were appended by the caller.
	Records, PayloadBytes uint64
	// WrittenBytes went to segment files, headers and padding included.
	WrittenBytes uint64
	// Writes and Syncs are of segment files, MarkSyncs of the durable mark.
	Writes, Syncs, MarkSyncs uint64
	// SegmentsCreated and SegmentsRecycled began as a new file and as a released
	// one; SegmentsRemoved were deleted.
	SegmentsCreated, SegmentsRecycled, SegmentsRemoved uint64
}

// counters are what Stats returns, as they are counted.
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
