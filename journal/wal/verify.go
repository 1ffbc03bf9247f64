package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hostd/hostd/journal/disk"
)

// Report is the result of Verify.
type Report struct {
	// ID is the id of the log.
	ID LogID
	// Mark is the position up to which the log is known to have been synced, and
	// Tail is the end of its records.
	Mark, Tail Position
	// Segments describes the segments that were not released, oldest first,
	// except missing and unreadable segments.
	Segments []SegmentInfo
	// Records and Bytes count the callers' valid records and their payloads.
	Records uint64
	Bytes   uint64
	// Findings are in file order.
	Findings []Finding
}

// Finding is an observation about a file.
type Finding struct {
	// File is a name in the log's directory. Offset is the position in the file,
	// in bytes.
	File   string
	Offset int64
	// Damage is false for remains that a crash may leave in an intact log.
	Damage bool
	// Text describes the finding.
	Text string
}

// IsDamaged reports whether Open would reject the log.
func (r *Report) IsDamaged() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Damage })
}

// verify reads the log in dir, which no process may have open, and reports
// every damaged or missing file, record and mark. It writes nothing. It returns
// an error only if the directory cannot be listed.
func verify(fsys disk.FS, dir string) (Report, error) { return VerifyEach(fsys, dir, nil) }

// VerifyEach is like Verify and also calls each with the valid records, as
// Replay would; it continues after damage. The payload is valid during the
// call. An error of each stops the reading of that segment.
func VerifyEach(fsys disk.FS, dir string, each func(pos Position, kind byte, payload []byte) error) (Report, error) {
	v := verifier{fs: fsys, dir: dir, each: each}
	names, err := list(fsys, dir)
	if err != nil {
		return v.report, fmt.Errorf("verify write-ahead log: %w", err)
	}
	if !names.mark && len(names.segments)+len(names.free) == 0 {
		return v.report, nil
	}
	v.readMark(names)
	v.readSegments(names)
	return v.report, nil
}

// verifier reads a whole log and collects findings.
type verifier struct {
	fs     disk.FS
	dir    string
	mark   mark
	report Report
	each   func(pos Position, kind byte, payload []byte) error
}

// damage adds a finding if err is not nil, and reports whether it did.
func (v *verifier) damage(err error) bool {
	var damage *DamageError
	switch {
	case err == nil:
		return false
	case errors.As(err, &damage):
		text := damage.Reason
		if damage.Err != nil {
			text += ": " + damage.Err.Error()
		}
		v.report.Findings = append(v.report.Findings, Finding{damage.File, damage.Offset, true, text})
	default:
		v.report.Findings = append(v.report.Findings, Finding{Damage: true, Text: err.Error()})
	}
	return true
}

func (v *verifier) warn(file string, offset int64, text string, args ...any) {
	v.report.Findings = append(v.report.Findings, Finding{File: file, Offset: offset, Text: fmt.Sprintf(text, args...)})
}

func (v *verifier) readMark(names listing) {
	if !names.mark {
		v.damage(newDamage(markName, 0, "missing, though there are segments"))
		return
	}
	data, err := loadMark(v.fs, filepath.Join(v.dir, markName))
	if v.damage(err) {
		return
	}
	for slot := range markSlots {
		offset := int64(slot * markSlotBytes)
		if _, _, reason := decodeMark(data[offset:]); reason != "" {
			v.warn(markName, offset, "%s, which a power failure during its write can cause", reason)
		}
	}
	m, id, _, err := readMark(data)
	if !v.damage(err) {
		v.mark, v.report.ID, v.report.Mark = m, id, m.position
	}
}

func (v *verifier) readSegments(names listing) {
	if len(names.segments) == 0 && v.mark.position.Segment == 0 {
		return
	}
	numbers := names.segments
	first := v.mark.first
	if first == 0 && len(numbers) > 0 {
		first = numbers[0]
	}
	last := max(first, v.mark.position.Segment)
	if len(numbers) > 0 {
		last = max(last, numbers[len(numbers)-1])
	}
	from, _ := slices.BinarySearch(numbers, first)
	if from > 0 {
		v.warn(segmentName(numbers[0]), 0, "released but not removed, and so are %d more segments", from-1)
	}
	var before *segmentHeader
	expected := first
	for _, number := range numbers[from:] {
		if number > expected {
			v.missing(expected, number-1, numbers[from:])
			v.readRecords(before, nil)
			before = nil
		}
		expected = number + 1
		h, err := v.header(number, before)
		if v.damage(err) {
			h = nil
		}
		v.readRecords(before, h)
		before = h
	}
	if expected <= last {
		v.missing(expected, last, nil)
	}
	v.readRecords(before, nil)
}

// missing reports missing segments that are followed by existing segments.
func (v *verifier) missing(from, to uint64, behind []uint64) {
	if err := missingSegment(from, behind, v.mark); from == to || err.File == markName {
		v.damage(err)
		return
	}
	v.damage(newDamage(segmentName(from), 0, "missing, and so are all segments up to %s", segmentName(to)))
}

func (v *verifier) header(number uint64, before *segmentHeader) (*segmentHeader, error) {
	if v.report.ID == (LogID{}) {
		v.report.ID = peekID(v.fs, filepath.Join(v.dir, segmentName(number)))
	}
	h, err := loadHeader(v.fs, v.dir, v.report.ID, number)
	if err != nil {
		return nil, err
	}
	var prior []segmentHeader
	if before != nil {
		prior = append(prior, *before)
	}
	return &h, checkFollows(h, prior, v.mark)
}

// peekID returns the id in a segment's header, for a log whose mark is lost, or
// zero.
func peekID(fsys disk.FS, path string) (id LogID) {
	file, err := fsys.OpenFile(path, disk.ReadOnly)
	if err != nil {
		return id
	}
	defer file.Close()
	page := make([]byte, headerBytes)
	if _, err := file.ReadAt(page, 0); err != nil {
		return id
	}
	h, _ := decodeSegmentHeader(page)
	return h.id
}

// readRecords reads the records of a segment. next is the header of the next
// segment, or nil if there is none.
func (v *verifier) readRecords(h, next *segmentHeader) {
	if h == nil {
		return
	}
	info := SegmentInfo{Number: h.number, Bytes: h.size}
	var err error
	certain := true
	if next != nil {
		info.End = next.previousEnd
		err = checkSealed(v.fs, v.dir, *h, *next, v.count)
	} else {
		info.End, err = v.tail(*h)
		certain = v.mark.position.Segment == h.number
	}
	v.report.Segments = append(v.report.Segments, info)
	var damage *DamageError
	if v.damage(err) && errors.As(err, &damage) && damage.File == segmentName(h.number) {
		v.resume(*h, damage.Offset, info.End, certain)
	}
}

func (v *verifier) count(rec record) error {
	if rec.kind != epochKind {
		v.report.Records++
		v.report.Bytes += uint64(len(rec.payload))
		if v.each != nil {
			return v.each(rec.position, rec.kind, rec.payload)
		}
	}
	return nil
}

func (v *verifier) tail(h segmentHeader) (end int64, err error) {
	name := segmentName(h.number)
	file, err := v.fs.OpenFile(filepath.Join(v.dir, name), disk.ReadOnly)
	if err != nil {
		return 0, newReadFailure(name, 0, err)
	}
	defer file.Close()
	r := newReader(file, h, h.size)
	reason, err := findTail(r, v.mark, v.count)
	v.report.Tail = r.next
	if marked := v.mark.position; err == nil && marked.Segment <= h.number && marked != r.next {
		v.warn(name, r.next.Offset, "the log ends here, but the mark file says it was synced up to %v: %s", marked, reason)
	}
	switch {
	case err == nil || v.mark.position.Segment < h.number:
		return r.next.Offset, err
	case v.mark.position.Segment == h.number:
		return max(r.next.Offset, v.mark.position.Offset), err
	default:
		return h.size, err
	}
}

// resume continues after the first damage of a segment, to count valid records
// and to find further damage. The records end at end, or at most at end if
// certain is false. It finds only records of the epoch in which the damage is.
func (v *verifier) resume(h segmentHeader, damage, end int64, certain bool) {
	name := segmentName(h.number)
	file, err := v.fs.OpenFile(filepath.Join(v.dir, name), disk.ReadOnly)
	if err != nil {
		return
	}
	defer file.Close()
	r := newReader(file, h, end)
	for r.next.Offset < damage {
		if _, reason, err := r.read(); reason != "" || err != nil {
			return
		}
	}
	for gap := damage; gap < end; gap = r.next.Offset {
		offset, err := r.find(gap, -1)
		if gap != damage && (offset != 0 || certain) {
			v.damage(newDamage(name, gap, "no valid record here"))
		}
		if offset == 0 || err != nil {
			return
		}
		r.next.Offset = offset
		for {
			rec, reason, err := r.read()
			if reason != "" || err != nil {
				break
			}
			v.count(rec)
		}
	}
}
