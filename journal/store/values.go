package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const valueVersion = 1

// frameBytes is the size of the frame before every value's body: version u8,
// and crc32c u32 (little endian) of the key followed by the body, so that a
// value under the wrong key is detected too.
const frameBytes = 5

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(key, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, body)
}

// openValue verifies a value's frame and returns its body, which aliases value.
func openValue(key, value []byte) ([]byte, error) {
	if len(value) < frameBytes {
		return nil, damagedValue(key, fmt.Sprintf("value with %d bytes", len(value)))
	}
	if sum(key, value[frameBytes:]) != binary.LittleEndian.Uint32(value[1:]) {
		return nil, damagedValue(key, "checksum mismatch")
	}
	if value[0] != valueVersion {
		return nil, fmt.Errorf("%w: value version %d in %s", journal.ErrUnsupported, value[0], DescribeKey(key))
	}
	return value[frameBytes:], nil
}

// Head is the entity row: the state of an entity that can be read without its
// records.
type Head struct {
	Sequence  journal.Sequence
	Hash      journal.Hash     // the hash chain's link at Sequence
	Last      journal.Position // position of the entity's last record
	Deleted   bool             // set by the entity's last record
	Stopped   bool             // set by the entity's last record
	UpdatedAt int64            // recordedAt of the entity's last record
	Records   uint64           // number of stored records
	Bytes     uint64           // encoded size of those records
	Snapshots Snapshots        // in the store
	Stands    journal.Position // position of the entity's last record when the newest snapshot was applied; zero if the snapshot has no filter or the position is unknown
	Timers    uint32           // number of timers that are set
	Set       HeadTimers       // the timers that have no row of ClassTimer
	Life      uint32           // number of incarnations that ended with timers left to be removed
	Left      uint32           // number of timers of earlier incarnations that are not removed yet
	CutTo     journal.Sequence // records that end before this sequence are still to be truncated; 0 for none
	Run       HeadRun          // status of the run; empty if the entity is no run
	Cut       *Cut             // nil if no records were truncated; never modified
}

// Cut is the start of an entity's records after earlier records were truncated.
// Records and Bytes of the Head count the remaining records.
type Cut struct {
	Sequence journal.Sequence // sequence of the last truncated event, at least 1
	Hash     journal.Hash     // the hash chain's link at Sequence
	Last     journal.Position // position of the last truncated record
}

// Snapshots are the sequences of an entity's snapshots, oldest first, padded
// with zeros.
type Snapshots [journal.MaxSnapshots]journal.Sequence

// Len returns the number of snapshots.
func (s *Snapshots) Len() int {
	n := 0
	for n < len(s) && s[n] != 0 {
		n++
	}
	return n
}

// Add adds the newest snapshot, which may replace a snapshot at the same
// sequence. It returns the snapshots to be removed so that keep snapshots
// remain.
func (s *Snapshots) Add(newest journal.Sequence, keep int) (gone []journal.Sequence) {
	all := append([]journal.Sequence{}, s[:s.Len()]...)
	if n := len(all); n == 0 || all[n-1] < newest {
		all = append(all, newest)
	}
	if n := len(all) - keep; n > 0 {
		gone, all = all[:n:n], all[n:]
	}
	*s = Snapshots{}
	copy(s[:], all)
	return gone
}

const (
	headBytes     = 1 + 8 + 32 + 8 + 4 + 8 + 8 + 8
	headDeleted   = 1 << 0
	headSnapshots = 1 << 1
	headTimers    = 1 << 2
	headStopped   = 1 << 3
	headCut       = 1 << 4
	headStands    = 1 << 5
	headSet       = 1 << 6
	headMore      = 1 << 7

	moreLife  = 1 << 0
	moreCutTo = 1 << 1
	moreRun   = 1 << 2

	cutBytes = 8 + 32 + positionBytes
)

// AppendHead appends the body of an entity row. Layout, little endian: flags u8
// (bit 0: deleted, bit 1: has snapshots, bit 2: has timers, bit 3: stopped, bit
// 4: compacted, bit 5: the position of the newest snapshot is known, bit 6:
// stores timers inline, bit 7: has further flags), sequence u64, hash [32],
// last index u64, last ordinal u32, updatedAt i64, records u64, bytes u64; with
// bit 1 count u8 and the sequence u64 of each snapshot, oldest first; with bit
// 2 their number u32, not 0; with bit 6 HeadTimers and their length u8; with
// bit 5 the position of the last record when the newest snapshot was applied,
// index u64, ordinal u32; with bit 4 the cut: sequence u64, hash [32], last
// index u64, last ordinal u32; with bit 7 the fields of the further flags, then
// these u8: with their bit 0 the incarnation u32, not 0, and the number of
// timers left from earlier incarnations u32, with their bit 1 the sequence u64,
// not 0, before which records are to be truncated, and with their bit 2 HeadRun
// and its length u16. Bit 5 requires bit 1, bit 6 requires bit 2, and bit 7
// requires a further flag.
func AppendHead(dst []byte, h *Head) []byte {
	var flags byte
	if h.Deleted {
		flags |= headDeleted
	}
	if h.Stopped {
		flags |= headStopped
	}
	if h.Cut != nil {
		flags |= headCut
	}
	n := h.Snapshots.Len()
	if n > 0 {
		flags |= headSnapshots
	}
	stands := n > 0 && h.Stands != journal.Position{}
	if stands {
		flags |= headStands
	}
	if h.Timers > 0 {
		flags |= headTimers
	}
	if len(h.Set) > 0 {
		flags |= headSet
	}
	more := h.more()
	if more != 0 {
		flags |= headMore
	}
	dst = append(dst, flags)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Sequence))
	dst = append(dst, h.Hash[:]...)
	dst = appendPosition(dst, h.Last)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.UpdatedAt))
	dst = binary.LittleEndian.AppendUint64(dst, h.Records)
	dst = binary.LittleEndian.AppendUint64(dst, h.Bytes)
	if n > 0 {
		dst = append(dst, byte(n))
		for _, s := range h.Snapshots[:n] {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(s))
		}
	}
	if h.Timers > 0 {
		dst = binary.LittleEndian.AppendUint32(dst, h.Timers)
	}
	if len(h.Set) > 0 {
		dst = append(append(dst, h.Set...), byte(len(h.Set)))
	}
	if stands {
		dst = appendPosition(dst, h.Stands)
	}
	if c := h.Cut; c != nil {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Sequence))
		dst = append(dst, c.Hash[:]...)
		dst = appendPosition(dst, c.Last)
	}
	if more&moreLife != 0 {
		dst = binary.LittleEndian.AppendUint32(dst, h.Life)
		dst = binary.LittleEndian.AppendUint32(dst, h.Left)
	}
	if more&moreCutTo != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(h.CutTo))
	}
	if more&moreRun != 0 {
		dst = binary.LittleEndian.AppendUint16(append(dst, h.Run...), uint16(len(h.Run)))
	}
	if more != 0 {
		dst = append(dst, more)
	}
	return dst
}

// more returns the further flags of an entity row.
func (h *Head) more() (flags byte) {
	if h.Life > 0 {
		flags |= moreLife
	}
	if h.CutTo > 0 {
		flags |= moreCutTo
	}
	if h.Run != "" {
		flags |= moreRun
	}
	return flags
}

// Owes reports whether the entity has rows to be removed: timers of earlier
// incarnations, or records.
func (h *Head) Owes() bool { return h.Left > 0 || h.CutTo > 0 }

// DecodeHead is the inverse of AppendHead.
func DecodeHead(b []byte) (Head, error) {
	var h Head
	if !h.decodeTail(b) {
		return Head{}, fmt.Errorf("%w: entity row with %d bytes", journal.ErrDamaged, len(b))
	}
	h.Deleted = b[0]&headDeleted != 0
	h.Stopped = b[0]&headStopped != 0
	h.Sequence = journal.Sequence(binary.LittleEndian.Uint64(b[1:]))
	h.Hash = journal.Hash(b[9:41])
	h.Last = position(b[41:])
	h.UpdatedAt = int64(binary.LittleEndian.Uint64(b[53:]))
	h.Records = binary.LittleEndian.Uint64(b[61:])
	h.Bytes = binary.LittleEndian.Uint64(b[69:])
	return h, nil
}

// decodeTail decodes the variable part of an entity row, and reports whether
// its size and flags are valid.
func (h *Head) decodeTail(b []byte) bool {
	if len(b) < headBytes {
		return false
	}
	tail, ok := b[headBytes:], true
	last := func(n int) []byte { // the last n bytes of the tail
		at := len(tail) - n
		if at < 0 {
			ok = false
			return make([]byte, n)
		}
		var out []byte
		tail, out = tail[:at], tail[at:]
		return out
	}
	if b[0]&headMore != 0 {
		more := last(1)[0]
		ok = ok && more != 0 && more&^(moreLife|moreCutTo|moreRun) == 0
		if more&moreRun != 0 {
			h.Run = HeadRun(last(int(binary.LittleEndian.Uint16(last(2)))))
			ok = ok && h.Run.isWhole()
		}
		if more&moreCutTo != 0 {
			h.CutTo = journal.Sequence(binary.LittleEndian.Uint64(last(8)))
			ok = ok && h.CutTo != 0
		}
		if more&moreLife != 0 {
			l := last(8)
			h.Life, h.Left = binary.LittleEndian.Uint32(l), binary.LittleEndian.Uint32(l[4:])
			ok = ok && h.Life != 0
		}
	}
	if b[0]&headCut != 0 {
		c := last(cutBytes)
		h.Cut = &Cut{Sequence: journal.Sequence(binary.LittleEndian.Uint64(c)), Hash: journal.Hash(c[8:40]), Last: position(c[40:])}
		ok = ok && h.Cut.Sequence != 0
	}
	if b[0]&headStands != 0 {
		h.Stands = position(last(positionBytes))
		ok = ok && b[0]&headSnapshots != 0 && h.Stands != journal.Position{}
	}
	if b[0]&headSet != 0 {
		h.Set = HeadTimers(last(int(last(1)[0])))
		ok = ok && b[0]&headTimers != 0 && h.Set.whole()
	}
	if b[0]&headTimers != 0 {
		h.Timers = binary.LittleEndian.Uint32(last(4))
		ok = ok && h.Timers != 0 && int64(h.Timers) >= int64(h.Set.Len())
	}
	if !ok || b[0]&headSnapshots == 0 {
		return ok && len(tail) == 0
	}
	if len(tail) < 1 || tail[0] == 0 || int(tail[0]) > len(h.Snapshots) || len(tail) != 1+8*int(tail[0]) {
		return false
	}
	for i := range int(tail[0]) {
		h.Snapshots[i] = journal.Sequence(binary.LittleEndian.Uint64(tail[1+8*i:]))
		if h.Snapshots[i] == 0 || i > 0 && h.Snapshots[i] <= h.Snapshots[i-1] {
			return false
		}
	}
	return true
}

// Applied is the applied state of a shard.
type Applied struct {
	Index    uint64
	Term     sharding.Term // of the entry at Index
	Clock    int64         // log clock: the highest recordedAt, unix nanoseconds
	Ordered  uint64        // index of the last order block, 0 for none
	Entities uint64        // number of existing entities
	Heads    uint64        // entity rows, including deleted ones
	Revision uint64        // highest activation revision in the shard's log
	Bytes    uint64        // encoded size of all stored records
	Summed   bool          // the row has sums
	Sums     Sums          // checksums of the shard's rows
}

// Lengths of the row in this release, in releases without Bytes, and in
// releases without Bytes and Revision.
const (
	appliedBytes        = 8 * 8
	appliedWithoutBytes = 7 * 8
	appliedWithoutBoth  = 6 * 8
)

// AppendApplied appends the body of a shard's applied state. Layout, little
// endian: index u64, term u64, clock i64, ordered u64, entities u64, heads u64,
// revision u64, bytes u64, and if Summed is set the sums, see appendSums.
func AppendApplied(dst []byte, a *Applied) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, a.Index)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(a.Term))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(a.Clock))
	dst = binary.LittleEndian.AppendUint64(dst, a.Ordered)
	dst = binary.LittleEndian.AppendUint64(dst, a.Entities)
	dst = binary.LittleEndian.AppendUint64(dst, a.Heads)
	dst = binary.LittleEndian.AppendUint64(dst, a.Revision)
	dst = binary.LittleEndian.AppendUint64(dst, a.Bytes)
	if a.Summed {
		dst = appendSums(dst, &a.Sums)
	}
	return dst
}

// DecodeApplied is the inverse of AppendApplied. Bytes and Revision are 0 if
// the row was written by an earlier release that did not have them.
func DecodeApplied(b []byte) (Applied, error) {
	var sums Sums
	whole := len(b) == appliedBytes || len(b) == appliedWithoutBytes || len(b) == appliedWithoutBoth
	if len(b) > appliedBytes {
		sums, whole = decodeSums(b[appliedBytes:])
	}
	if !whole {
		return Applied{}, fmt.Errorf("%w: applied state with %d bytes", journal.ErrDamaged, len(b))
	}
	a := Applied{
		Summed: len(b) > appliedBytes, Sums: sums,
		Index:    binary.LittleEndian.Uint64(b),
		Term:     sharding.Term(binary.LittleEndian.Uint64(b[8:])),
		Clock:    int64(binary.LittleEndian.Uint64(b[16:])),
		Ordered:  binary.LittleEndian.Uint64(b[24:]),
		Entities: binary.LittleEndian.Uint64(b[32:]),
		Heads:    binary.LittleEndian.Uint64(b[40:]),
	}
	if len(b) >= appliedWithoutBytes {
		a.Revision = binary.LittleEndian.Uint64(b[48:])
	}
	if len(b) >= appliedBytes {
		a.Bytes = binary.LittleEndian.Uint64(b[56:])
	}
	return a, nil
}

const positionBytes = 12

func appendPosition(dst []byte, p journal.Position) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, p.Index)
	return binary.LittleEndian.AppendUint32(dst, p.Ordinal)
}

func position(b []byte) journal.Position {
	return journal.Position{Index: binary.LittleEndian.Uint64(b), Ordinal: binary.LittleEndian.Uint32(b[8:])}
}

// Import is the progress of a shard's import.
type Import struct {
	ID       journal.ImportID
	Next     uint64 // number of the next chunk
	Complete bool
}

const importBytes = 16 + 8 + 1

// AppendImport appends the body of an import's progress: id [16], next chunk
// u64, state u8 (1 in progress, 2 complete).
func AppendImport(dst []byte, i *Import) []byte {
	dst = append(dst, i.ID[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, i.Next)
	if i.Complete {
		return append(dst, 2)
	}
	return append(dst, 1)
}

// DecodeImport is the inverse of AppendImport.
func DecodeImport(body []byte) (i Import, err error) {
	if len(body) != importBytes || body[24] < 1 || body[24] > 2 {
		return i, fmt.Errorf("%w: import progress with %d bytes", journal.ErrDamaged, len(body))
	}
	copy(i.ID[:], body)
	i.Next, i.Complete = binary.LittleEndian.Uint64(body[16:]), body[24] == 2
	return i, nil
}
