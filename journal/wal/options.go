package wal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Options configure a log. Zero fields get the default.
type Options struct {
	// SegmentBytes is the length of new segment files, a multiple of 4,096 from
	// 8 KiB to 4 GiB; default 64 MiB. The length may change when the log is
	// opened again. Release frees space one segment at a time.
	SegmentBytes int64
	// RecycleSegments is how many released files are kept for reuse; default 2.
	// A negative value means that no file is kept. Overwriting an existing file
	// takes half to two thirds of the time needed to write a new file.
	RecycleSegments int
	// MaxRecordBytes bounds the payload of a record; default the smaller of 32
	// MiB and half a segment.
	MaxRecordBytes int64
	// Logger receives information about recovery; default none.
	Logger *slog.Logger
	// Now is the clock that spaces the syncs of the mark and measures syncs;
	// default time.Now.
	Now func() time.Time
	// Rand generates the id of a new log; default crypto/rand. Rand is not used
	// for an existing log.
	Rand func() uint64
	// ObserveSync is called with the duration of each sync of a segment, on the
	// goroutine of the log; default none.
	ObserveSync func(time.Duration)
}

const (
	minSegmentBytes = 8 << 10
	maxSegmentBytes = 4 << 30
)

func (o Options) withDefaults() Options {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.RecycleSegments == 0 {
		o.RecycleSegments = 2
	}
	if o.MaxRecordBytes == 0 {
		o.MaxRecordBytes = min(32<<20, o.SegmentBytes/2)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = cryptoUint64
	}
	return o
}

// Validate returns every problem with the options.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.SegmentBytes < minSegmentBytes || o.SegmentBytes > maxSegmentBytes || o.SegmentBytes%headerBytes != 0 {
		errs = append(errs, fmt.Errorf("segment bytes: must be a multiple of %[2]d between %[3]d and %[4]d, got %[1]d",
			o.SegmentBytes, headerBytes, minSegmentBytes, int64(maxSegmentBytes)))
	}
	if o.MaxRecordBytes < 0 || o.MaxRecordBytes > o.SegmentBytes {
		errs = append(errs, fmt.Errorf("max record bytes: must be between 1 and the segment length, %[2]d, got %[1]d",
			o.MaxRecordBytes, o.SegmentBytes))
	}
	return errors.Join(errs...)
}

// cryptoUint64 never fails: crypto/rand.Read ends the process instead.
func cryptoUint64() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}
