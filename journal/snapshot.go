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
	// snapshotRetains is the version of snapshots that say what they cut.
	snapshotRetains = 2
)

const (
	// MaxSnapshots bounds how many snapshots of one entity are kept.
	MaxSnapshots = 4
	// MaxSnapshotBytes bounds an encoded snapshot.
	MaxSnapshotBytes = 1<<20 - 1<<10
)

// SnapshotUse decides what a reader does with a snapshot that a module made.
// truncated says that the first records of the entity's history are gone, so
// that a snapshot is all that is left of them.
type SnapshotUse func(module Digest, truncated bool) SnapshotRank

// SnapshotRank is how good a snapshot is for a reader.
type SnapshotRank uint8

// The ranks, in rising order.
const (
	SnapshotUnread     SnapshotRank = iota // the reader's module must not load it
	SnapshotLastResort                     // if there is no other
	SnapshotLoads                          // as if the module had made it
)

// SnapshotsBy accepts the snapshots of the modules alone.
func SnapshotsBy(modules ...Digest) SnapshotUse {
	return func(module Digest, _ bool) SnapshotRank {
		if slices.Contains(modules, module) {
			return SnapshotLoads
		}
		return SnapshotUnread
	}
}

// Snapshot is an entity's state after its event Sequence, as the module's own
// bytes. It stands for the events up to there when the entity is loaded, for
// the same module only. It does not stand for the window of remembered
// commands: the records that make it are read besides, from Window on.
type Snapshot struct {
	Entity   sharding.EntityID
	Sequence Sequence // at least 1
	Hash     Hash     // the chain's link at Sequence
	Module   Digest   // that made State
	// Window is the last sequence of the oldest record that was remembered at
	// Sequence, or of an older one; at most Sequence.
	Window Sequence
	// Keep is how many snapshots of the entity stay, this one included: 1 to
	// MaxSnapshots.
	Keep uint8
	// Retain has the entity's records cut when the snapshot is taken: 0 cuts
	// none. Else those stay that the oldest snapshot kept needs, with its window,
	// and those with any of the last Retain - 1 events.
	Retain uint64
	// Filter says which command ids may be among those remembered; empty: the
	// records from Window on are read to know them. FilterIDs is how many ids
	// were put into it.
	Filter    []byte
	FilterIDs uint32
	State     []byte

	// Stands is the place of the entity's last record when a snapshot with a
	// Filter was applied, as the replica that has read it knows: it stands for the
	// events and the command ids up to there. Zero where nobody knows. UpdatedAt
	// is when the last record was recorded that was there when the snapshot was
	// read. Neither is encoded.
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
	dst = append(dst, version, s.Keep)
	dst = append8(dst, s.Entity.Type)
	dst = append16(dst, s.Entity.ID)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Sequence))
	dst = append(dst, s.Hash[:]...)
	dst = append(dst, s.Module[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Window))
	if s.Retain > 0 {
		dst = binary.LittleEndian.AppendUint64(dst, s.Retain)
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

// Decode fills s from raw, one whole snapshot, and checks its checksum and its
// numbers. Filter and State alias raw; names are copies. The errors are those
// of Record.Decode.
func (s *Snapshot) Decode(raw []byte) error {
	raw, rest, err := SplitRecord(raw)
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return fmt.Errorf("%w: bytes after a snapshot", ErrDamaged)
	}
	d := decoder{b: raw[8:]}
	version := d.u8()
	if version != snapshotVersion && version != snapshotRetains {
		return fmt.Errorf("%w: snapshot version %d", ErrUnsupported, version)
	}
	s.Keep = d.u8()
	s.Entity = sharding.EntityID{Type: string(d.take(int(d.u8()))), ID: string(d.take(int(d.u16())))}
	s.Sequence = Sequence(d.u64())
	copy(s.Hash[:], d.take(32))
	copy(s.Module[:], d.take(32))
	s.Window, s.Retain = Sequence(d.u64()), 0
	if version == snapshotRetains {
		s.Retain = d.u64()
	}
	s.FilterIDs = d.u32()
	s.Filter = d.take(int(d.u32()))
	s.State = d.b
	s.Stands, s.UpdatedAt = Position{}, 0
	if d.bad {
		return fmt.Errorf("%w: fields run past the snapshot's end", ErrDamaged)
	}
	if n := len(s.Filter); n&(n-1) != 0 {
		return fmt.Errorf("%w: a filter of %d bytes", ErrDamaged, n)
	}
	if s.Sequence == 0 || s.Window > s.Sequence || s.Keep == 0 || s.Keep > MaxSnapshots || version == snapshotRetains && s.Retain == 0 {
		return fmt.Errorf("%w: snapshot at %d, window %d, keeping %d", ErrDamaged, s.Sequence, s.Window, s.Keep)
	}
	return nil
}

// Takeover is where, in what is left of an entity whose first records were cut,
// a module has made a snapshot although another one wrote what came before. The
// state in that snapshot is right if the module read the other one's events, or
// its snapshot as it was meant. Nothing that is left can tell.
type Takeover struct {
	// Sequence is the earliest that is left of Before: of a record or a snapshot.
	Sequence Sequence
	Before   Digest
	// Snapshot is the sequence of the next snapshot, which another module, By, has
	// made.
	Snapshot Sequence
	By       Digest
}
