// Package verdict defines the results of applying committed entries, and the
// reasons why an entry has no effect. Both are the same on every replica,
// except on a replica on which the shard has stopped. It makes no decisions and
// starts no goroutine.
package verdict

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Limits of entries. They determine whether an entry is valid, so they are the
// same on every replica: a value in the store has at most 1 MiB.
const (
	// MaxEntryBytes is the maximum size of an entry's data.
	MaxEntryBytes = 1 << 20
	// MaxRecordBytes is the maximum size of a record, including framing.
	MaxRecordBytes = 1<<20 - 1<<10
)

// Reasons why a committed entry has no effect. They are the same on every
// replica and final: retrying with the same bytes cannot succeed.
var (
	// ErrFenced: the proposer was activated in a different term than the
	// entry's.
	ErrFenced = errors.New("the entry was proposed in a different term")
	// ErrSequence: a record does not follow its entity's last sequence.
	ErrSequence = errors.New("a record does not follow its entity's last event")
	// ErrChain: a record follows its entity's last sequence, but not its hash
	// chain: it was written for a different history.
	ErrChain = errors.New("a record does not continue its entity's hash chain")
	// ErrInvalid: a record or an entry is invalid; no correct proposer creates it.
	ErrInvalid = errors.New("invalid entry")
)

// IsDefinite reports whether an error is one of these reasons.
func IsDefinite(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrSequence) || errors.Is(err, ErrChain) || errors.Is(err, ErrInvalid)
}

// CheckName rejects an entity name that cannot be part of a key; what describes
// it in the error.
func CheckName(typ, id []byte, what string) error {
	if validName(typ, sharding.MaxEntityTypeBytes) && validName(id, sharding.MaxEntityIDBytes) {
		return nil
	}
	return fmt.Errorf("%w: %s is not a valid name", ErrInvalid, what)
}

func validName(name []byte, most int) bool {
	return len(name) > 0 && len(name) <= most && bytes.IndexByte(name, 0) < 0
}

// StoppedError is the apply result of entries of a shard that has stopped. In
// this generation of the shard, this node applies nothing after Index. It wraps
// journal.ErrStopped. Other replicas may have applied the entry, so its outcome
// is unknown.
type StoppedError struct {
	Shard sharding.ShardID
	Index uint64 // applied index
	Cause error  // usually journal.ErrDamaged or journal.ErrUnsupported
}

func (e *StoppedError) Error() string { return journal.ErrStopped.Error() + ": " + e.Cause.Error() }

// Unwrap returns journal.ErrStopped and the cause.
func (e *StoppedError) Unwrap() []error { return []error{journal.ErrStopped, e.Cause} }

// ApplyResult is the result of applying one committed entry.
type ApplyResult struct {
	Shard    sharding.ShardID
	Index    uint64
	Term     sharding.Term // of the raft entry
	Fence    sharding.Term // zero for a no-op
	Proposal uint64
	Kind     journal.EntryKind // zero for a no-op
	// Err is nil if the entry took effect.
	Err error
	// Owing is set while the shard has deferred work that its next entries will
	// do; see journal.EntryWork.
	Owing bool
	// NoOp marks an entry without data.
	NoOp bool
	// Messages is set if the entry created messages.
	Messages bool
	// Proof is the checksum of the shard's rows after the entry, if this is one of
	// the entries at which all replicas take a checksum. Otherwise it is nil.
	Proof *journal.Proof
	// Imported is set if the entry completed the shard's import.
	Imported bool
	// Clock is the shard's log clock after the entry, in Unix nanoseconds.
	Clock int64
	// Revision is the shard's binding revision after the entry.
	Revision uint64
	// Meta is the result of the metadata state machine. It belongs to the
	// receiver.
	Meta []byte
}
