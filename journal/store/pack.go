package store

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/journal"
)

// An event block holds consecutive records of one entity in one value. The
// division into blocks is local to a replica, and may differ when records are
// written again after a crash, so blocks of one entity may overlap, and an
// older block may survive between newer blocks. Each block therefore names the
// record that precedes its first record. A reader skips a block if it has not
// seen that record yet, and skips records that it has already seen.
//
// Body, little endian: previous index u64, previous ordinal u32 (zeros before
// the entity's first record), then for each record: index u64, ordinal u32, the
// record with its own length and checksum.

// AppendPackStart appends the start of a block's body.
func AppendPackStart(dst []byte, previous journal.Position) []byte {
	return appendPosition(dst, previous)
}

// AppendPackRecord appends one record, including its framing.
func AppendPackRecord(dst []byte, at journal.Position, raw []byte) []byte {
	dst = appendPosition(dst, at)
	return append(dst, raw...)
}

// PackRecordBytes is the number of bytes that AppendPackRecord adds for a
// record of n bytes.
func PackRecordBytes(n int) int { return positionBytes + n }

// Pack iterates over the records of a block's body.
type Pack struct {
	Previous journal.Position
	rest     []byte
}

// OpenPack returns the block in body, before its first record.
func OpenPack(body []byte) (Pack, error) {
	if len(body) < positionBytes {
		return Pack{}, fmt.Errorf("%w: event block with %d bytes", journal.ErrDamaged, len(body))
	}
	return Pack{Previous: position(body), rest: body[positionBytes:]}, nil
}

// Next returns the next record and its position, or a nil raw at the end. It
// verifies the record's checksum.
func (p *Pack) Next() (at journal.Position, raw []byte, err error) {
	if len(p.rest) == 0 {
		return at, nil, nil
	}
	if len(p.rest) < positionBytes {
		return at, nil, fmt.Errorf("%w: truncated event block", journal.ErrDamaged)
	}
	at = position(p.rest)
	raw, p.rest, err = journal.SplitRecord(p.rest[positionBytes:])
	return at, raw, err
}

// SkipBefore skips the records that end before a sequence. It determines where
// a record ends from the record that follows, and does not read or verify the
// skipped records.
func (p *Pack) SkipBefore(from journal.Sequence) {
	for len(p.rest) >= positionBytes+8 {
		n := positionBytes + 8 + int(binary.LittleEndian.Uint32(p.rest[positionBytes:]))
		if len(p.rest) < n+positionBytes {
			return
		}
		if next, ok := journal.PeekExpected(p.rest[n+positionBytes:]); !ok || next >= from {
			return
		}
		p.rest = p.rest[n:]
	}
}

// An order block holds rows for consecutive raft entries of one shard, in
// order: which entity got which sequences, with the events' tags. It covers the
// entries after its previous index up to the index in its key. Entries without
// events have no rows. Overlapping blocks are handled as for event blocks.
//
// Body: previous index u64 little endian, with its highest bit set if rows have
// fingerprints, then rows: index uvarint (minus that of the previous row, or
// minus previous), ordinal uvarint, if that bit is set the fingerprint u32
// little endian, type (len u8), id (len u16), first sequence uvarint, event
// count uvarint, each event: tag count u8, each tag (len u8).

// fingerprinted is the bit in a block's previous index that is set if the rows
// have fingerprints.
const fingerprinted = 1 << 63

// OrderWriter appends order blocks. Its zero value writes blocks without
// fingerprints, as in earlier cluster versions.
type OrderWriter struct{ Fingerprints bool }

// Start appends the start of an order block's body.
func (w OrderWriter) Start(dst []byte, previous uint64) []byte {
	if w.Fingerprints {
		previous |= fingerprinted
	}
	return binary.LittleEndian.AppendUint64(dst, previous)
}

// Row appends the row of a record with events. before is the index of the
// previous row, or the block's previous index. fingerprint is the fingerprint
// of the hash chain after the record, or 0 if it is unknown.
func (w OrderWriter) Row(dst []byte, before uint64, at journal.Position, fingerprint uint32, v *journal.RecordView) []byte {
	dst = binary.AppendUvarint(dst, at.Index-before)
	dst = binary.AppendUvarint(dst, uint64(at.Ordinal))
	if w.Fingerprints {
		dst = binary.LittleEndian.AppendUint32(dst, fingerprint)
	}
	dst = append(dst, byte(len(v.Type)))
	dst = append(dst, v.Type...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(v.ID)))
	dst = append(dst, v.ID...)
	dst = binary.AppendUvarint(dst, uint64(v.Expected)+1)
	dst = binary.AppendUvarint(dst, uint64(v.EventCount))
	for c := v.Events(); c.Next(); {
		dst = append(dst, byte(c.TagCount))
		dst = append(dst, c.RawTags()...)
	}
	return dst
}

// OrderRow is the place of a record in a shard's order. Its slices alias the
// block.
type OrderRow struct {
	At       journal.Position
	Type, ID []byte
	First    journal.Sequence
	Events   int
	// Fingerprint is the fingerprint of the entity's hash chain after the record.
	// It is 0 if the row was written at an earlier cluster version.
	Fingerprint uint32
	tags        []byte
}

// Tags calls fn for each tag of the row's events, in order.
func (r *OrderRow) Tags(fn func(seq journal.Sequence, tag []byte)) {
	b := r.tags
	for i := 0; i < r.Events; i++ {
		n := int(b[0])
		b = b[1:]
		for ; n > 0; n-- {
			fn(r.First+journal.Sequence(i), b[1:1+int(b[0])])
			b = b[1+int(b[0]):]
		}
	}
}

// OrderPack iterates over the rows of an order block's body.
type OrderPack struct {
	Previous     uint64
	fingerprints bool
	index        uint64
	rest         []byte
}

// OpenOrderPack returns the block in body, before its first row.
func OpenOrderPack(body []byte) (OrderPack, error) {
	if len(body) < 8 {
		return OrderPack{}, fmt.Errorf("%w: order block with %d bytes", journal.ErrDamaged, len(body))
	}
	prev := binary.LittleEndian.Uint64(body)
	marked := prev&fingerprinted != 0
	prev &^= fingerprinted
	return OrderPack{Previous: prev, fingerprints: marked, index: prev, rest: body[8:]}, nil
}

// Next fills row with the next row and reports whether there is one.
func (p *OrderPack) Next(row *OrderRow) (bool, error) {
	if len(p.rest) == 0 {
		return false, nil
	}
	d := rowDecoder{b: p.rest}
	p.index += d.uvarint()
	row.At = journal.Position{Index: p.index, Ordinal: uint32(d.uvarint())}
	row.Fingerprint = 0
	if b := []byte(nil); p.fingerprints {
		if b = d.take(4); !d.bad {
			row.Fingerprint = binary.LittleEndian.Uint32(b)
		}
	}
	row.Type = d.take(int(d.u8()))
	row.ID = d.take(int(d.u8()) | int(d.u8())<<8)
	row.First = journal.Sequence(d.uvarint())
	n := d.uvarint()
	if n > 0xffff {
		d.bad = true
	}
	row.Events = int(n)
	row.tags = d.b
	for i := 0; i < row.Events && !d.bad; i++ {
		for t := d.u8(); t > 0 && !d.bad; t-- {
			d.take(int(d.u8()))
		}
	}
	if d.bad {
		return false, fmt.Errorf("%w: truncated order block", journal.ErrDamaged)
	}
	row.tags = row.tags[:len(row.tags)-len(d.b)]
	p.rest = d.b
	return true, nil
}

// rowDecoder decodes fields from the front of b. After the first short read it
// is bad.
type rowDecoder struct {
	b   []byte
	bad bool
}

func (d *rowDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *rowDecoder) u8() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *rowDecoder) take(n int) []byte {
	if n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}
