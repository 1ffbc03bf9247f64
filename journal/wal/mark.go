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
	// runningSlot is written after every sync of a segment and not synced itself.
	runningSlot = 2
	finalFlag   = 1
)

// mark says how far the log was synced. Bad bytes below it are damage.
type mark struct {
	sequence uint64
	// position is behind the last synced record. Segment 0 says that the log was
	// still being made.
	position Position
	epoch    uint64
	// first is the oldest segment that was not released.
	first uint64
	// lastCRC is the checksum of the record that ends at position, 0 if there is
	// none in its segment.
	lastCRC uint32
	// final says that nothing was written behind position.
	final bool
	// flaw is why a slot of the file that was read is not whole, and flawed which:
	// it may have been the newest. Empty when all are. They are not written.
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

// decodeMark reads a slot. The reason is empty if it is whole.
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

// markFile keeps the mark in three slots. Two are written in turn and each
// synced at once, so that a power cut during one leaves the other; the third is
// written after every sync of a segment and reaches the disk when the operating
// system likes, so that the end of the process loses nothing and a power cut at
// most what came after the last turn.
type markFile struct {
	file    disk.File
	id      LogID
	current mark
	// turn is the slot that is synced next.
	turn     int
	running  bool // the running slot is ahead of the synced ones
	syncedAt time.Time
	settled  []byte
	syncs    *atomic.Uint64
	buf      [markBytes]byte
}

func createMark(fsys disk.FS, path string, id LogID, m mark) error {
	data := make([]byte, markFileBytes)
	for slot := range markSlots {
		m.encode(data[slot*markSlotBytes:], id)
	}
	return disk.WriteFileAtomic(fsys, path, data)
}

// readMark returns the newest whole slot of a mark file, and which of the two
// synced slots to write next: one that is not whole, else the older.
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
			return m, id, turn, damaged(markName, int64(slot*markSlotBytes), "slot is of another log, %v", sid)
		}
		sequences[slot] = s.sequence
		if !found || s.sequence > m.sequence {
			m = s
		}
		id, found = sid, true
	}
	if !found {
		return m, id, turn, damaged(markName, 0, "no slot is whole")
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

// settle writes the newest synced slot again, as settled holds it, and syncs
// it. An earlier process may have written it and failed to sync it: only when
// it is on the disk may the other one be written over.
func (f *markFile) settle() error {
	if _, err := f.file.WriteAt(f.settled, int64((1-f.turn)*markSlotBytes)); err != nil {
		return err
	}
	return f.file.Sync()
}

// writeRunning moves the mark without syncing it.
func (f *markFile) writeRunning(m mark) error {
	f.running = true
	return f.write(runningSlot, m)
}

// writeDurable moves the mark and syncs it.
func (f *markFile) writeDurable(m mark, now time.Time) error {
	if err := f.write(f.turn, m); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	f.syncs.Add(1)
	f.turn = 1 - f.turn
	f.running = false
	f.syncedAt = now
	return nil
}
