// Package journal is the vocabulary of durable history: events, the record
// that carries one command's whole effect, the raft entry that carries a batch
// of records, the hash chain over an entity's events, and the errors. It
// defines the bytes of all of them. It never does I/O and starts no goroutine;
// the machinery lives in its children.
package journal

import (
	"encoding/binary"
	"encoding/hex"
	"errors"

	"github.com/hostd/hostd/sharding"
)

// Sequence numbers an entity's events 1..n without a gap; 0 is an entity
// without events.
type Sequence uint64

// CommandID is the client's name for a command, unique per entity; 1..128
// bytes of printable UTF-8.
type CommandID string

// MaxCommandIDBytes bounds a CommandID.
const MaxCommandIDBytes = 128

// Digest is the SHA-256 of a module's bytes.
type Digest [32]byte

// String returns lower-case hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Hash is a link of an entity's hash chain: see Chain.
type Hash [32]byte

// String returns lower-case hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Fingerprint is 4 bytes of the link, for those who compare histories where 32
// bytes are too many. It is never 0, and 1 for the zero Hash.
func (h Hash) Fingerprint() uint32 { return max(binary.LittleEndian.Uint32(h[:]), 1) }

// Position orders an entity's records: the raft index of the entry that
// carries the record, then its place in that entry. Positions of one shard
// are comparable; the zero Position is before every record.
type Position struct {
	Index   uint64 // raft index, from 1
	Ordinal uint32 // place within the entry, from 0
}

// Less reports whether p is before q.
func (p Position) Less(q Position) bool {
	return p.Index < q.Index || p.Index == q.Index && p.Ordinal < q.Ordinal
}

// Errors of decoding and of appending. None of them is worth a retry with the
// same bytes.
var (
	// ErrDamaged: bytes that a checksum, a length or the chain contradicts.
	ErrDamaged = errors.New("journal: damaged record")
	// ErrUnsupported: a well-formed record of a version or with a section
	// that this release does not know.
	ErrUnsupported = errors.New("journal: unsupported record version")
	// ErrTooLarge: a record over a bound of the format.
	ErrTooLarge = errors.New("journal: record too large")
)

// ErrInstalling: the shard's state on this node is being replaced by a
// snapshot. Retry: nothing can be read here until that is done.
var ErrInstalling = errors.New("the shard is being installed on this node")

// ErrOtherHistory: the place that a reader continues from is one of a history
// that the shard does not have, because a data directory was restored or a shard
// was recovered without its newest records. Start over.
var ErrOtherHistory = errors.New("the shard has another history than the reader has seen")

// ErrStopped: the shard has stopped on this node, which can neither apply nor
// read it: it found damage, or an entry of a later release. Retry elsewhere.
var ErrStopped = errors.New("the shard has stopped on this node")

// Event is one fact of an entity's history.
type Event struct {
	Type    string // 1..255 bytes
	Payload []byte
	Tags    []string
}

// Flags of a Record.
const (
	// FlagServerID marks a command id made by the server: it is kept for
	// five minutes instead of the whole dedupe window.
	FlagServerID = 1 << 0
	// FlagTombstone marks the deletion of the entity after its events.
	FlagTombstone = 1 << 1
	// FlagStopped marks that the entity was let go with the command: nobody
	// starts it again before its next one.
	FlagStopped = 1 << 2
)

// Record is one command's whole effect on one entity: its events, its reply
// and what is needed to answer the same command again. It is the unit of the
// journal: a record is durable and visible as a whole or not at all. A
// successful command without events has a record too.
type Record struct {
	Entity      sharding.EntityID
	Flags       uint8
	Term        sharding.Term // of the shard, when the command ran
	RecordedAt  int64         // unix nanoseconds of the shard's log clock
	Expected    Sequence      // the entity's last sequence before this record
	Prev        Hash          // the chain's link at Expected; zero at 0
	Module      Digest        // the module that made the events
	CommandID   CommandID
	CommandHash uint64 // of the command's name and payload, see HashCommand
	Reply       []byte
	Events      []Event
	Sections    []Section // ascending by kind
}

// TombstoneEvent is the type of the event, without a payload, by which the
// journal tells that an entity was deleted: the last of a record with
// FlagTombstone. Records of early releases have the flag alone.
const TombstoneEvent = "hostd.deleted"

// Tombstone reports that the record's i-th event is its TombstoneEvent.
func (r *Record) Tombstone(i int) bool {
	return r.Flags&FlagTombstone != 0 && i == len(r.Events)-1 && r.Events[i].Type == TombstoneEvent
}

// Last returns the entity's sequence after the record.
func (r *Record) Last() Sequence { return r.Expected + Sequence(len(r.Events)) }
