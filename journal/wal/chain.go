package wal

import (
	"path/filepath"
	"slices"

	"github.com/hostd/hostd/journal/disk"
)

// listing is the content of a log's directory. Names that the log never creates
// are ignored.
type listing struct {
	mark     bool
	segments []uint64 // ascending
	free     []string
	temps    []string
}

func list(fsys disk.FS, dir string) (listing, error) {
	var found listing
	names, err := fsys.List(dir)
	if err != nil {
		return found, err
	}
	for _, name := range names {
		if number, ok := parseName(name, segmentSuffix); ok && number > 0 {
			found.segments = append(found.segments, number)
		} else if _, ok := parseName(name, freeSuffix); ok {
			found.free = append(found.free, name)
		} else if _, ok := parseName(name, segmentSuffix+tempSuffix); ok || name == markName+tempSuffix {
			found.temps = append(found.temps, name)
		} else if name == markName {
			found.mark = true
		}
	}
	slices.Sort(found.segments)
	return found, nil
}

// loadHeaders reads the headers of the segments that were not released, and
// checks that no segment is missing and that each follows from the previous
// segment.
func loadHeaders(fsys disk.FS, dir string, id LogID, numbers []uint64, m mark) ([]segmentHeader, error) {
	from, _ := slices.BinarySearch(numbers, m.first)
	numbers = numbers[from:]
	last := max(m.first, m.position.Segment)
	if len(numbers) > 0 {
		last = max(last, numbers[len(numbers)-1])
	}
	var headers []segmentHeader
	for number := m.first; number <= last; number++ {
		if i := int(number - m.first); i >= len(numbers) || numbers[i] != number {
			return headers, missingSegment(number, numbers, m)
		}
		h, err := loadHeader(fsys, dir, id, number)
		if err != nil {
			return headers, err
		}
		if err := checkFollows(h, headers, m); err != nil {
			return headers, err
		}
		headers = append(headers, h)
	}
	return headers, nil
}

// missingSegment returns the damage of a missing segment. If the segment is the
// oldest segment and a slot of the mark is invalid, the slot is reported as the
// damage, because that slot may have recorded that the segment was released.
func missingSegment(number uint64, others []uint64, m mark) *DamageError {
	if m.flaw == "" || number != m.first || len(others) == 0 {
		return newDamage(segmentName(number), 0, "missing")
	}
	return newDamage(markName, int64(m.flawed*markSlotBytes), "slot %d is invalid (%s); the other slots say that the log starts with %s, which is missing and may have been released since",
		m.flawed, m.flaw, segmentName(number))
}

func checkFollows(h segmentHeader, before []segmentHeader, m mark) error {
	name := segmentName(h.number)
	if h.number == 1 {
		if h.previousEnd != 0 || h.previousEpoch != 0 {
			return newDamage(name, 0, "the header of the first segment names a previous segment")
		}
		return nil
	}
	if h.epoch != h.previousEpoch+1 {
		return newDamage(name, 0, "epoch %d does not follow %d", h.epoch, h.previousEpoch)
	}
	if len(before) == 0 {
		return nil
	}
	p := before[len(before)-1]
	switch {
	case h.previousEnd < headerBytes || h.previousEnd > p.size:
		return newDamage(name, 0, "the header says that the previous segment ends at %d, but that has %d bytes", h.previousEnd, p.size)
	case m.position.Segment == p.number && h.previousEnd < m.position.Offset:
		return newDamage(name, 0, "the header says that the previous segment ends at %d, before the synced end", h.previousEnd)
	}
	return nil
}

func loadHeader(fsys disk.FS, dir string, id LogID, number uint64) (h segmentHeader, err error) {
	name := segmentName(number)
	file, err := fsys.OpenFile(filepath.Join(dir, name), disk.ReadOnly)
	if err != nil {
		return h, newReadFailure(name, 0, err)
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return h, newReadFailure(name, 0, err)
	}
	if size < headerBytes {
		return h, newDamage(name, 0, "the file has %d bytes, less than a header", size)
	}
	page := make([]byte, headerBytes)
	if _, err := file.ReadAt(page, 0); err != nil {
		return h, newReadFailure(name, 0, err)
	}
	h, reason := decodeSegmentHeader(page)
	switch {
	case reason != "":
		return h, newDamage(name, 0, "%s", reason)
	case h.id != id:
		return h, newDamage(name, 0, "the segment belongs to log %v instead of %v", h.id, id)
	case h.number != number:
		return h, newDamage(name, 0, "the header names segment %d", h.number)
	case h.size != size:
		return h, newDamage(name, 0, "the file has %d bytes instead of %d", size, h.size)
	case h.size > maxSegmentBytes || h.size%headerBytes != 0:
		return h, newDamage(name, 0, "%d is not a valid segment length", h.size)
	}
	return h, nil
}

// checkSealed verifies a segment that has a successor. The successor's header
// says where it ends, and everything up to there was synced before the
// successor got its name. checkSealed passes each record to fn if fn is not
// nil.
func checkSealed(fsys disk.FS, dir string, h, next segmentHeader, fn func(record) error) error {
	name := segmentName(h.number)
	file, err := fsys.OpenFile(filepath.Join(dir, name), disk.ReadOnly)
	if err != nil {
		return newReadFailure(name, 0, err)
	}
	defer file.Close()
	r := newReader(file, h, next.previousEnd)
	for r.next.Offset < r.limit {
		rec, reason, err := r.read()
		if err != nil {
			return newReadFailure(name, r.next.Offset, err)
		}
		if reason != "" {
			return newDamage(name, r.next.Offset, "%s, but the segment continues to %d", reason, r.limit)
		}
		if fn != nil {
			if err := fn(rec); err != nil {
				return err
			}
		}
	}
	if r.coder.epoch != next.previousEpoch {
		return newDamage(name, r.next.Offset, "the segment ends in epoch %d, but the next segment follows epoch %d",
			r.coder.epoch, next.previousEpoch)
	}
	return nil
}

// findTail reads the last segment up to its last valid record, and returns why
// there is no further valid record. The tail must not be before the mark, and
// nothing after the tail may prove that there were more records.
func findTail(r *reader, m mark, fn func(record) error) (reason string, err error) {
	name := segmentName(r.next.Segment)
	marked := m.position.Segment == r.next.Segment
	met := false
	for reason == "" {
		if marked && r.next == m.position {
			met = true
			if r.coder.epoch != m.epoch || r.lastCRC != m.lastCRC {
				return "", newDamage(name, r.next.Offset, "the records up to the synced end differ from the synced ones")
			}
		}
		var rec record
		if rec, reason, err = r.read(); err != nil {
			return "", newReadFailure(name, r.next.Offset, err)
		}
		if reason == "" && fn != nil {
			if err := fn(rec); err != nil {
				return "", err
			}
		}
	}
	tail := r.next.Offset
	switch {
	case marked && tail < m.position.Offset:
		return "", newDamage(name, tail, "%s, but the log was synced up to %d", reason, m.position.Offset)
	case marked && !met:
		return "", newDamage(name, m.position.Offset, "no record ends at the synced end")
	case marked && m.final && tail == m.position.Offset:
		return reason, nil
	}
	proof, err := r.findDamageProof()
	if err != nil {
		return "", newReadFailure(name, tail, err)
	}
	if proof != 0 {
		return "", newDamage(name, tail, "%s, but the record at %d was written after this offset was synced", reason, proof)
	}
	return reason, nil
}
