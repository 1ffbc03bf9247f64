package journal

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/sharding"
)

const (
	entryVersion = 1
	// entryPaced is the encoding version of entries whose slow work later
	// entries do.
	entryPaced = 2
)

// EntryKind is the kind of a raft entry.
type EntryKind uint8

const (
	// EntryRecords carries records of a data shard.
	EntryRecords EntryKind = 1
	// EntryMeta carries one command of the metadata state machine.
	EntryMeta EntryKind = 2
	// EntryBindings carries the activation revision under which the shard's
	// commands run from here on: the mapping of entity types to modules. A
	// leader commits it before its first command under that revision.
	EntryBindings EntryKind = 3
	// EntrySnapshot carries one Snapshot of an entity at its last event.
	EntrySnapshot EntryKind = 4
	// EntryOutbox carries outcomes of messages and dead letters apart from
	// records: a sequence of OutboxOp.
	EntryOutbox EntryKind = 5
	// EntryImport carries parts of another cluster's shards: Import. It takes
	// effect only in a shard that has never held an entity.
	EntryImport EntryKind = 6
	// EntryProof carries the replica checksum of the shard at an earlier index:
	// Proof. It changes nothing.
	EntryProof EntryKind = 7
	// EntryWork carries nothing. Like any paced entry, it continues the work
	// that earlier entries deferred.
	EntryWork EntryKind = 8
)

// EntryHeaderBytes is the length of an entry's header.
const EntryHeaderBytes = 18

// Entry is the decoded header of a raft entry's data, and its body.
type Entry struct {
	Kind EntryKind
	// Paced applies to EntryRecords and EntrySnapshot. A paced entry defers its
	// slow work, and each later entry of the shard does a slice of this work:
	// after a deletion, later entries remove the entity's timers, and after a
	// snapshot, later entries truncate the records. Paced entries are written
	// from sharding.VersionPacedWork on. An entry that is not paced does all of
	// its work at once.
	Paced bool
	// Fence is the term in which the proposer was activated. Apply discards the
	// entry unless Fence equals the raft entry's own term.
	Fence sharding.Term
	// Proposal is the proposer's number for the entry, by which it recognizes
	// the entry at apply. It increases within a fence.
	Proposal uint64
	// Body is, depending on Kind, a sequence of records, the metadata command,
	// the revision, the snapshot, or the outbox operations.
	Body []byte
}

// AppendEntryHeader appends an entry's header. The body follows it. Layout,
// little endian: version u8, kind u8, fence u64, proposal u64.
func AppendEntryHeader(dst []byte, kind EntryKind, fence sharding.Term, proposal uint64) []byte {
	return appendEntryHeader(dst, entryVersion, kind, fence, proposal)
}

// AppendPacedHeader is like AppendEntryHeader, but marks the entry as Paced if
// level, the cluster version, supports such entries.
func AppendPacedHeader(dst []byte, level sharding.ClusterVersion, kind EntryKind, fence sharding.Term, proposal uint64) []byte {
	version := byte(entryVersion)
	if level >= sharding.VersionPacedWork {
		version = entryPaced
	}
	return appendEntryHeader(dst, version, kind, fence, proposal)
}

func appendEntryHeader(dst []byte, version byte, kind EntryKind, fence sharding.Term, proposal uint64) []byte {
	dst = append(dst, version, byte(kind))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(fence))
	return binary.LittleEndian.AppendUint64(dst, proposal)
}

// DecodeEntry decodes an entry. Body aliases data.
func DecodeEntry(data []byte) (Entry, error) {
	if len(data) < EntryHeaderBytes {
		return Entry{}, fmt.Errorf("%w: entry with %d bytes", ErrDamaged, len(data))
	}
	if data[0] != entryVersion && data[0] != entryPaced {
		return Entry{}, fmt.Errorf("%w: entry version %d", ErrUnsupported, data[0])
	}
	e := Entry{
		Paced:    data[0] == entryPaced,
		Kind:     EntryKind(data[1]),
		Fence:    sharding.Term(binary.LittleEndian.Uint64(data[2:])),
		Proposal: binary.LittleEndian.Uint64(data[10:]),
		Body:     data[EntryHeaderBytes:],
	}
	known := e.Kind >= EntryRecords && e.Kind <= EntryProof
	if e.Paced {
		known = e.Kind == EntryRecords || e.Kind == EntrySnapshot || e.Kind == EntryWork
	}
	if !known {
		return Entry{}, fmt.Errorf("%w: entry kind %d of version %d", ErrUnsupported, e.Kind, data[0])
	}
	return e, nil
}

// AppendBindingsEntry appends a complete entry with an activation revision.
func AppendBindingsEntry(dst []byte, fence sharding.Term, proposal, revision uint64) []byte {
	dst = AppendEntryHeader(dst, EntryBindings, fence, proposal)
	return binary.LittleEndian.AppendUint64(dst, revision)
}

// BindingsRevision returns the revision in the body of a bindings entry.
func (e *Entry) BindingsRevision() (revision uint64, ok bool) {
	if e.Kind != EntryBindings || len(e.Body) != 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(e.Body), true
}

// Committed is a committed raft entry on its way to the state machine. Data is
// never modified, and is empty for a new leader's no-op and for a membership
// change.
type Committed struct {
	Index uint64
	Term  sharding.Term
	Data  []byte
}
