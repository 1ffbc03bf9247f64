package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/hostd/hostd/sharding"
)

const (
	snapshotVersion = 1
	// snapshotRetains is the version of snapshots with a retention.
	snapshotRetains = 2
	// snapshotCheckpoint is the version of checkpoints, with or without a
	// retention.
	snapshotCheckpoint = 3
)

const (
	// MaxSnapshots bounds the kept snapshots of an entity.
	MaxSnapshots = 4
	// MaxSnapshotBytes bounds an encoded snapshot.
	MaxSnapshotBytes = 1<<20 - 1<<10
)

// NoModule is the Module of a checkpoint, which every module of the type can
// load.
var NoModule Digest

// SnapshotUse decides how a reader uses a snapshot made by the given module.
// truncated means that the first records of the entity's history were
// compacted, so that only a snapshot replaces them.
type SnapshotUse func(module Digest, truncated bool) SnapshotRank

// SnapshotRank is the preference of a snapshot for a reader.
type SnapshotRank uint8

// The ranks, in rising order.
const (
	SnapshotUnread     SnapshotRank = iota // must not be loaded by the reader's module
	SnapshotLastResort                     // used only if there is no other snapshot
	SnapshotLoads                          // as good as the module's own
)

// SnapshotsBy accepts only snapshots of the given modules.
func SnapshotsBy(modules ...Digest) SnapshotUse {
	return func(module Digest, _ bool) SnapshotRank {
		if slices.Contains(modules, module) {
			return SnapshotLoads
		}
		return SnapshotUnread
	}
}

// Snapshot is an entity's state after event Sequence, in the module's own
// format. When the entity is loaded, the snapshot replaces the replay of the
// events up to Sequence. Only the module that made the snapshot can load it,
// unless it is a checkpoint. The snapshot does not contain the idempotency
// window, which is read from the records from Window on.
type Snapshot struct {
	Entity   sharding.EntityID
	Sequence Sequence // at least 1
	Hash     Hash     // the hash chain's link at Sequence
	Module   Digest   // the module that made State; zero for a checkpoint
	// Window is the last sequence of the oldest record in the idempotency
	// window at Sequence, or of an older record; at most Sequence.
	Window Sequence
	// Keep is how many snapshots of the entity are kept, including this one: 1
	// to MaxSnapshots.
	Keep uint8
	// If Retain is not 0, applying the snapshot truncates the entity's records.
	// The remaining records are the records that the oldest kept snapshot
	// needs, including its window, and the records that contain any of the last
	// Retain - 1 events.
	Retain uint64
	// Filter is a Bloom filter of the command ids in the idempotency window. If
	// it is empty the records from Window on are read instead. FilterIDs is the
	// number of ids in the filter.
	Filter    []byte
	FilterIDs uint32
	State     []byte
	// Checkpoint marks the checkpoint of a workflow run. State is then the
	// payload of the event at Sequence, which every module of the type can
	// read. Chain is the length of the chain of messages that started the run.
	// The length is stored here because the record that contains it may be
	// truncated.
	Checkpoint bool
	Chain      uint8

	// Stands and UpdatedAt are not encoded; the replica that reads the snapshot
	// sets them. Stands is the position of the entity's last record when a
	// snapshot with a Filter was applied: the snapshot covers all events and
	// command ids up to that position. It is zero if unknown. UpdatedAt is the
	// time of the last record that existed when the snapshot was read.
	Stands    Position
	UpdatedAt int64
}

// AppendSnapshot appends the encoding of s. Layout, little endian:
//
//	length u32 of body, crc32c u32 of body, body:
//	  version u8, keep u8, entity type (len u8), entity id (len u16)
//	  sequence u64, hash [32], module [32], window u64, of version 2 retain u64
//	  filter ids u32, filter (len u32), state to the end
//
// It panics on names that its fields cannot hold.
func AppendSnapshot(dst []byte, s *Snapshot) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	version := byte(snapshotVersion)
	if s.Retain > 0 {
		version = snapshotRetains
	}
	if s.Checkpoint {
		version = snapshotCheckpoint
	}
	dst = append(dst, version, s.Keep)
	dst = append8(dst, s.Entity.Type)
	dst = append16(dst, s.Entity.ID)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Sequence))
	dst = append(dst, s.Hash[:]...)
	dst = append(dst, s.Module[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Window))
	if version >= snapshotRetains {
		dst = binary.LittleEndian.AppendUint64(dst, s.Retain)
	}
	if s.Checkpoint {
		dst = append(dst, s.Chain)
	}
	dst = binary.LittleEndian.AppendUint32(dst, s.FilterIDs)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.Filter)))
	dst = append(dst, s.Filter...)
	dst = append(dst, s.State...)
	body := dst[start+8:]
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(body)))
	binary.LittleEndian.PutUint32(dst[start+4:], crc32.Checksum(body, castagnoli))
	return dst
}

// Decode decodes raw, one complete snapshot, and verifies its checksum and
// numbers. Filter and State alias raw; names are copies. The errors are those
// of Record.Decode.
func (s *Snapshot) Decode(raw []byte) error {
	raw, rest, err := SplitRecord(raw)
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return fmt.Errorf("%w: unexpected bytes after a snapshot", ErrDamaged)
	}
	d := decoder{b: raw[8:]}
	version := d.u8()
	if version < snapshotVersion || version > snapshotCheckpoint {
		return fmt.Errorf("%w: snapshot version %d", ErrUnsupported, version)
	}
	s.Keep = d.u8()
	s.Entity = sharding.EntityID{Type: string(d.take(int(d.u8()))), ID: string(d.take(int(d.u16())))}
	s.Sequence = Sequence(d.u64())
	copy(s.Hash[:], d.take(32))
	copy(s.Module[:], d.take(32))
	s.Window, s.Retain = Sequence(d.u64()), 0
	if version >= snapshotRetains {
		s.Retain = d.u64()
	}
	s.Checkpoint, s.Chain = version == snapshotCheckpoint, 0
	if s.Checkpoint {
		s.Chain = d.u8()
	}
	s.FilterIDs = d.u32()
	s.Filter = d.take(int(d.u32()))
	s.State = d.b
	s.Stands, s.UpdatedAt = Position{}, 0
	if d.bad {
		return fmt.Errorf("%w: fields run past the snapshot's end", ErrDamaged)
	}
	if n := len(s.Filter); n&(n-1) != 0 {
		return fmt.Errorf("%w: idempotency filter with %d bytes", ErrDamaged, n)
	}
	if s.Sequence == 0 || s.Window > s.Sequence || s.Keep == 0 || s.Keep > MaxSnapshots || version == snapshotRetains && s.Retain == 0 {
		return fmt.Errorf("%w: snapshot at sequence %d with window %d, keeping events from %d", ErrDamaged, s.Sequence, s.Window, s.Keep)
	}
	if s.Checkpoint && s.Module != NoModule {
		return fmt.Errorf("%w: a checkpoint at %d is of module %s", ErrDamaged, s.Sequence, s.Module)
	}
	return nil
}

// Takeover is a place in a compacted history where a module made a snapshot
// although a different module wrote the preceding records. The snapshot's state
// is right only if the module interpreted the other module's events or snapshot
// correctly. The remaining history cannot prove that it did.
type Takeover struct {
	// Sequence is the sequence of the earliest remaining record or snapshot of
	// the module Before.
	Sequence Sequence
	Before   Digest
	// Snapshot is the sequence of the next snapshot, which a different module,
	// By, made.
	Snapshot Sequence
	By       Digest
}
