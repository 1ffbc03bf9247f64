package eventlog

import (
	"errors"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Reasons for which a committed entry has no effect. They are the same on
// every replica, and definite: sending the same bytes again cannot succeed.
var (
	// ErrFenced: the proposer was activated in another term than the entry's.
	ErrFenced = errors.New("the entry was proposed in another term")
	// ErrSequence: a record does not follow its entity's last sequence.
	ErrSequence = errors.New("a record does not follow its entity's last event")
	// ErrChain: a record follows the last sequence, with another history.
	ErrChain = errors.New("a record does not follow its entity's hash chain")
	// ErrInvalid: a record or an entry that no proposer should have made.
	ErrInvalid = errors.New("the entry is not valid")
)

// ErrStopped is wrapped by every verdict of a shard that has stopped on this
// replica: an entry it cannot read, or damage in the store. It says nothing of
// other replicas, so the outcome of the entry is unknown, not definite.
var ErrStopped = errors.New("the shard has stopped on this node")

// ErrInstalling is journal.ErrInstalling.
var ErrInstalling = journal.ErrInstalling

// StoppedError is the verdict of a shard that has stopped: nothing after Index
// is applied here until the node is repaired.
type StoppedError struct {
	Shard sharding.ShardID
	Index uint64 // last applied
	Cause error  // journal.ErrDamaged or journal.ErrUnsupported, mostly
}

func (e *StoppedError) Error() string { return ErrStopped.Error() + ": " + e.Cause.Error() }

// Unwrap returns ErrStopped and the cause.
func (e *StoppedError) Unwrap() []error { return []error{ErrStopped, e.Cause} }

// Verdict is what became of one committed entry.
type Verdict struct {
	Shard    sharding.ShardID
	Index    uint64
	Term     sharding.Term // of the raft entry
	Fence    sharding.Term // zero for a no-op
	Proposal uint64
	Kind     journal.EntryKind // zero for a no-op
	// Err is nil when the entry took effect.
	Err error
	// NoOp marks an entry without data.
	NoOp bool
	// Sends says that the entry made some.
	Sends bool
	// Imported says that the shard's import is complete with the entry.
	Imported bool
	// Clock is the shard's log clock after the entry, unix nanoseconds.
	Clock int64
	// Revision is the shard's binding revision after the entry.
	Revision uint64
	// Meta is the metadata machine's result; the receiver's to keep.
	Meta []byte
}
