package wal

import (
	"errors"
	"fmt"
)

var (
	// ErrPoisoned is returned by every call after a write or sync failed. Do not
	// retry. The process must exit, and Open in the next process determines which
	// data reached the disk.
	ErrPoisoned = errors.New("the write-ahead log has failed")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the write-ahead log is closed")
	// ErrReplayLate is returned by Replay after Append.
	ErrReplayLate = errors.New("cannot replay the write-ahead log after an append")
	// ErrKind is returned by Append for kind 0, which is reserved.
	ErrKind = errors.New("record kind 0 is reserved")
)

// RecordTooLargeError is returned by Append for a record that exceeds the
// limit, or that does not fit into a segment after its checkpoint. Nothing was
// appended, and retrying fails again.
type RecordTooLargeError struct {
	// Bytes is the length of the payload, and Limit is the greatest length that is
	// accepted.
	Bytes, Limit int64
}

func (e *RecordTooLargeError) Error() string {
	return fmt.Sprintf("record of %d bytes exceeds the limit of %d", e.Bytes, e.Limit)
}

// DamageError reports that bytes which were synced, and may have been
// acknowledged, are lost or changed. The log was not opened and nothing was
// written. Do not retry.
type DamageError struct {
	// File is the name of the file in the log's directory.
	File string
	// Offset is where the damage starts in the file, in bytes; 0 if the file as
	// a whole is wrong or missing.
	Offset int64
	// Reason describes the fault, and Hint the action that an operator can
	// take.
	Reason, Hint string
	// Err is the disk error, if there was one.
	Err error
}

const damageHint = "rebuild a node of a cluster from its peers by starting it with an empty data directory; " +
	"a single node can drop the damaged end of its log with 'hostd recover --accept-loss'"

func (e *DamageError) Error() string {
	text := fmt.Sprintf("write-ahead log damaged: %s at offset %d: %s", e.File, e.Offset, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + " (" + e.Hint + ")"
}

// Unwrap returns the disk error.
func (e *DamageError) Unwrap() error { return e.Err }

func newDamage(file string, offset int64, reason string, args ...any) *DamageError {
	return &DamageError{File: file, Offset: offset, Reason: fmt.Sprintf(reason, args...), Hint: damageHint}
}

func newReadFailure(file string, offset int64, err error) *DamageError {
	return &DamageError{File: file, Offset: offset, Reason: "the file cannot be read", Hint: damageHint, Err: err}
}
