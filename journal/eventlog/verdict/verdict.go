// Package verdict says what became of a committed entry, and why one has no
// effect: the same on every replica, but for a shard that has stopped on one. It
// decides nothing.
// The package starts no goroutine.
package verdict

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Bounds of what can be applied, part of what makes an entry valid on every
// replica: a value in the store holds at most 1 MiB.
const (
	// MaxEntryBytes bounds an entry's data.
	MaxEntryBytes = 1 << 20
	// MaxRecordBytes bounds a record, framing included.
	MaxRecordBytes = 1<<20 - 1<<10
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

// Definite says whether an error is one of these reasons.
func Definite(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrSequence) || errors.Is(err, ErrChain) || errors.Is(err, ErrInvalid)
}

// Name refuses an entity's name that cannot be a key; what is what it is of.
func Name(typ, id []byte, what string) error {
	if validName(typ, sharding.MaxEntityTypeBytes) && validName(id, sharding.MaxEntityIDBytes) {
		return nil
	}
	return fmt.Errorf("%w: %s cannot be a key", ErrInvalid, what)
}

func validName(name []byte, most int) bool {
	return len(name) > 0 && len(name) <= most && bytes.IndexByte(name, 0) < 0
}

// StoppedError is the verdict of a shard that has stopped: nothing after Index
// is applied here in this generation of the shard. It wraps journal.ErrStopped. It
// says nothing of other replicas, so the outcome of the entry is unknown, not
// definite.
type StoppedError struct {
	Shard sharding.ShardID
	Index uint64 // last applied
	Cause error  // journal.ErrDamaged or journal.ErrUnsupported, mostly
}

func (e *StoppedError) Error() string { return journal.ErrStopped.Error() + ": " + e.Cause.Error() }

// Unwrap returns journal.ErrStopped and the cause.
func (e *StoppedError) Unwrap() []error { return []error{journal.ErrStopped, e.Cause} }

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
	// Owing is set while the shard has work left that its next entries do; see
	// journal.EntryWork.
	Owing bool
	// NoOp marks an entry without data.
	NoOp bool
	// Messages says that the entry made some.
	Messages bool
	// Proof is the digest of the shard's rows after the entry, where it is one of
	// those at which all replicas take it; nil otherwise.
	Proof *journal.Proof
	// Imported says that the shard's import is complete with the entry.
	Imported bool
	// Clock is the shard's log clock after the entry, unix nanoseconds.
	Clock int64
	// Revision is the shard's binding revision after the entry.
	Revision uint64
	// Meta is the metadata machine's result; the receiver's to keep.
	Meta []byte
}
