package eventlog

import (
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/verdict"
)

// Reasons for which a committed entry has no effect; see package verdict.
var (
	ErrFenced   = verdict.ErrFenced
	ErrSequence = verdict.ErrSequence
	ErrChain    = verdict.ErrChain
	ErrInvalid  = verdict.ErrInvalid
)

// ErrStopped is journal.ErrStopped. Every verdict of a shard that has stopped
// on this replica wraps it: an entry it cannot read, or damage in the store. It says nothing of
// other replicas, so the outcome of the entry is unknown, not definite.
var ErrStopped = journal.ErrStopped

// ErrInstalling is journal.ErrInstalling.
var ErrInstalling = journal.ErrInstalling

// Verdict is what became of one committed entry.
type Verdict = verdict.Verdict

// StoppedError is the verdict of a shard that has stopped.
type StoppedError = verdict.StoppedError

// Bounds of what can be applied; see package verdict.
const (
	MaxEntryBytes  = verdict.MaxEntryBytes
	MaxRecordBytes = verdict.MaxRecordBytes
)
