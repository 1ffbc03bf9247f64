package eventlog

import (
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/verdict"
)

// Reasons why a committed entry has no effect; see package verdict.
var (
	ErrFenced   = verdict.ErrFenced
	ErrSequence = verdict.ErrSequence
	ErrChain    = verdict.ErrChain
	ErrInvalid  = verdict.ErrInvalid
)

// ErrStopped is journal.ErrStopped. All results of a shard that has stopped on
// this replica wrap it: the replica cannot read an entry, or its store is
// damaged. Other replicas may be fine, so the outcome of the entry is unknown.
var ErrStopped = journal.ErrStopped

// ErrInstalling is journal.ErrInstalling.
var ErrInstalling = journal.ErrInstalling

// ApplyResult is the result of applying one committed entry.
type ApplyResult = verdict.ApplyResult

// StoppedError is the result of entries of a stopped shard.
type StoppedError = verdict.StoppedError

// Limits of entries; see package verdict.
const (
	maxEntryBytes  = verdict.MaxEntryBytes
	MaxRecordBytes = verdict.MaxRecordBytes
)
