package wal

import (
	"errors"
	"fmt"
)

var (
	// ErrPoisoned is returned by every call after a write or sync failed. No retry
	// is right: the process must end, and the next one finds with Open what
	// reached the disk.
	ErrPoisoned = errors.New("write-ahead log failed")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("write-ahead log closed")
	// ErrReplayLate is returned by Replay after Append.
	ErrReplayLate = errors.New("replay after append")
	// ErrKind is returned by Append for kind 0, which is the log's own.
	ErrKind = errors.New("record kind 0 is reserved")
)

// RecordTooLargeError is returned by Append for a record above the limit, or
// for one that does not fit a segment behind its checkpoint. Nothing was
// appended; the same record will never fit.
type RecordTooLargeError struct {
	// Bytes is the length of the payload, Limit the largest that would have been
	// taken.
	Bytes, Limit int64
}

func (e *RecordTooLargeError) Error() string {
	return fmt.Sprintf("record of %d bytes is above the limit of %d", e.Bytes, e.Limit)
}

// DamageError says that bytes which were synced, and may have been
// acknowledged, are gone or changed. The log was not opened and nothing was
// written. No retry is right.
type DamageError struct {
	// File is the name of the file in the log's directory.
	File string
	// Offset is where in the file the damage begins, in bytes; 0 when the file as
	// a whole is wrong or missing.
	Offset int64
	// Reason says what is wrong, Hint what an operator can do.
	Reason, Hint string
	// Err is the error of the disk, if it had one.
	Err error
}

const damageHint = "a node with peers comes back with an empty data directory and is rebuilt by them; " +
	"a lone node can be started on what is left before the damage with `hostd recover --accept-loss`"

func (e *DamageError) Error() string {
	text := fmt.Sprintf("write-ahead log damaged: %s at offset %d: %s", e.File, e.Offset, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + " (" + e.Hint + ")"
}

// Unwrap returns the error of the disk.
func (e *DamageError) Unwrap() error { return e.Err }

func damaged(file string, offset int64, reason string, args ...any) *DamageError {
	return &DamageError{File: file, Offset: offset, Reason: fmt.Sprintf(reason, args...), Hint: damageHint}
}

func unreadable(file string, offset int64, err error) *DamageError {
	return &DamageError{File: file, Offset: offset, Reason: "cannot be read", Hint: damageHint, Err: err}
}
