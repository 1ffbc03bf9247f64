package wal

import (
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/journal/disk"
)

const (
	markName      = "MARK"
	markMagic     = "hostdmrk"
	markBytes     = 80
	markSlotBytes = 4096
	markSlots     = 3
	markFileBytes = markSlots * markSlotBytes
	// runningSlot is written after every sync of a segment, but not synced itself.
	runningSlot = 2
	finalFlag   = 1
)

// mark records the position up to which the log was synced. Invalid bytes
// before that position are damage.
type mark struct {
	sequence uint64
	// position is the end of the last synced record. Segment 0 means that the
	// log was still being created.
	position Position
	epoch    uint64
	// first is the oldest segment that was not released.
	first uint64
	// lastCRC is the checksum of the record that ends at position, or 0 if its
	// segment has no such record.
	lastCRC uint32
	// final means that the log was closed and nothing was written after position.
	final bool
	// flaw says why a slot in the file is invalid, and flawed is the number of
	// that slot, which may have been the newest slot. flaw is empty if all
	// slots are valid. Neither field is stored.
	flaw   string
	flawed int
}

func (m mark) encode(b []byte, id LogID) {
	clear(b[:markBytes])
	copy(b, markMagic)
	littleEndian.PutUint32(b[8:], formatVersion)
	if m.final {
		littleEndian.PutUint32(b[12:], finalFlag)
	}
	copy(b[16:32], id[:])
	littleEndian.PutUint64(b[32:], m.sequence)
	littleEndian.PutUint64(b[40:], m.position.Segment)
	littleEndian.PutUint64(b[48:], uint64(m.position.Offset))
	littleEndian.PutUint64(b[56:], m.epoch)
	littleEndian.PutUint64(b[64:], m.first)
	littleEndian.PutUint32(b[72:], m.lastCRC)
	littleEndian.PutUint32(b[76:], crc32.Checksum(b[:76], castagnoli))
}

// decodeMark decodes a slot. The reason is empty if the slot is valid.
func decodeMark(b []byte) (m mark, id LogID, reason string) {
	if string(b[:len(markMagic)]) != markMagic {
		return m, id, "not a mark"
	}
	if crc32.Checksum(b[:76], castagnoli) != littleEndian.Uint32(b[76:]) {
		return m, id, "mark fails its checksum"
	}
	if v := littleEndian.Uint32(b[8:]); v != formatVersion {
		return m, id, fmt.Sprintf("mark has format version %d, this release reads %d", v, formatVersion)
	}
	copy(id[:], b[16:32])
	m.final = littleEndian.Uint32(b[12:])&finalFlag != 0
	m.sequence = littleEndian.Uint64(b[32:])
	m.position = Position{littleEndian.Uint64(b[40:]), int64(littleEndian.Uint64(b[48:]))}
	m.epoch = littleEndian.Uint64(b[56:])
	m.first = littleEndian.Uint64(b[64:])
	m.lastCRC = littleEndian.Uint32(b[72:])
	return m, id, ""
}

// markFile stores the mark in three slots. Two slots are written alternately,
// each followed by a sync, so that a power cut during one write leaves the
// other slot intact. The third slot is written after every sync of a segment,
// without a sync of its own: it survives the end of the process, and after a
// power cut at most the mark's last second is lost.
type markFile struct {
	file    disk.File
	id      LogID
	current mark
	// nextSlot is the slot to be synced next.
	nextSlot   int
	running    bool // the running slot is newer than the synced slots
	syncedAt   time.Time
	lastSynced []byte
	syncs      *atomic.Uint64
	buf        [markBytes]byte
}

func createMark(fsys disk.FS, path string, id LogID, m mark) error {
	data := make([]byte, markFileBytes)
	for slot := range markSlots {
		m.encode(data[slot*markSlotBytes:], id)
	}
	return disk.WriteFileAtomic(fsys, path, data)
}

// readMark returns the newest valid slot of a mark file, and the synced slot to
// write next: an invalid slot, or else the older slot.
func readMark(data []byte) (m mark, id LogID, turn int, err error) {
	var sequences [markSlots]uint64
	found, flaw, flawed := false, "", 0
	for slot := range markSlots {
		s, sid, reason := decodeMark(data[slot*markSlotBytes:])
		if reason != "" {
			flaw, flawed = reason, slot
			continue
		}
		if found && sid != id {
			return m, id, turn, newDamage(markName, int64(slot*markSlotBytes), "slot belongs to a different log, %v", sid)
		}
		sequences[slot] = s.sequence
		if !found || s.sequence > m.sequence {
			m = s
		}
		id, found = sid, true
	}
	if !found {
		return m, id, turn, newDamage(markName, 0, "no slot is valid")
	}
	if sequences[1] < sequences[0] {
		turn = 1
	}
	m.flaw, m.flawed = flaw, flawed
	return m, id, turn, nil
}

func (f *markFile) write(slot int, m mark) error {
	m.sequence = f.current.sequence + 1
	m.encode(f.buf[:], f.id)
	if _, err := f.file.WriteAt(f.buf[:], int64(slot*markSlotBytes)); err != nil {
		return err
	}
	f.current = m
	return nil
}

// rewriteSynced writes the newest synced slot again and syncs it, because an
// earlier process may have written it and failed to sync it. The other slot may
// be overwritten only once this slot is on disk.
func (f *markFile) rewriteSynced() error {
	if _, err := f.file.WriteAt(f.lastSynced, int64((1-f.nextSlot)*markSlotBytes)); err != nil {
		return err
	}
	return f.file.Sync()
}

// writeRunning writes the mark without syncing it.
func (f *markFile) writeRunning(m mark) error {
	f.running = true
	return f.write(runningSlot, m)
}

// writeDurable writes the mark and syncs it.
func (f *markFile) writeDurable(m mark, now time.Time) error {
	if err := f.write(f.nextSlot, m); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	f.syncs.Add(1)
	f.nextSlot = 1 - f.nextSlot
	f.running = false
	f.syncedAt = now
	return nil
}
