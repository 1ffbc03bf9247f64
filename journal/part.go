package journal

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// A part is a piece of what a shard holds, as it is exported from one cluster
// and imported into another: without the shard, and without positions in its
// log. The parts of an entity follow one another: its records in order, its
// snapshots, its timers, its end.

// PartKind says what a part is.
type PartKind uint8

const (
	// PartRecord is a Record, framing included.
	PartRecord PartKind = 1
	// PartSnapshot is a Snapshot, framing included.
	PartSnapshot PartKind = 2
	// PartTimer is a timer that is set: PartialTimer.
	PartTimer PartKind = 3
	// PartEnd ends an entity: EntityEnd.
	PartEnd PartKind = 4
	// PartMessage is a message that is not acknowledged: Transfer.
	PartMessage PartKind = 5
	// PartPair is the last number that was given to a message of a pair: Count, of
	// the source and the destination.
	PartPair PartKind = 6
	// PartInbox is the highest number that a destination has from a source:
	// Count, of the destination and the source.
	PartInbox PartKind = 7
	// PartDeadLetter is a dead letter: Transfer.
	PartDeadLetter PartKind = 8
)

const lastPart = PartDeadLetter

// PartHeaderBytes is what AppendPart adds to a part's data.
const PartHeaderBytes = 5

// AppendPart appends one part: kind u8, length u32, data.
func AppendPart(dst []byte, kind PartKind, data []byte) []byte {
	dst = append(dst, byte(kind))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(data)))
	return append(dst, data...)
}

// NextPart takes the first part off b, which must not be empty. Data aliases b.
func NextPart(b []byte) (kind PartKind, data, rest []byte, err error) {
	kind = PartKind(b[0])
	data, rest, ok := take32(b[1:])
	switch {
	case kind == 0 || kind > lastPart:
		return 0, nil, nil, fmt.Errorf("%w: part %d", ErrUnsupported, kind)
	case !ok:
		return 0, nil, nil, fmt.Errorf("%w: a part is cut short", ErrDamaged)
	}
	return kind, data, rest, nil
}

// PartialTimer is a timer that is set, in a part. Its slices alias what it was
// decoded from.
type PartialTimer struct {
	Entity           sharding.EntityID
	Name             []byte
	Due              int64 // unix nanoseconds of the log clock
	Command, Payload []byte
	Schedule         []byte // as AppendSchedule makes it; empty of one that fires once
}

// AppendPartialTimer appends the data of a timer part: type (len u8), id (len
// u16), name (len u8), due i64, command (len u8), schedule (len u32), payload
// to the end.
func AppendPartialTimer(dst []byte, t *PartialTimer) []byte {
	dst = append16(append8(dst, t.Entity.Type), t.Entity.ID)
	dst = append8(dst, string(t.Name))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(t.Due))
	dst = append8(dst, string(t.Command))
	dst = append32(dst, t.Schedule)
	return append(dst, t.Payload...)
}

// DecodePartialTimer reads the data of a timer part.
func DecodePartialTimer(data []byte) (t PartialTimer, err error) {
	d := decoder{b: data}
	t.Entity = d.entity()
	t.Name, t.Due, t.Command, t.Schedule = d.take(int(d.u8())), int64(d.u64()), d.take(int(d.u8())), d.take(int(d.u32()))
	if t.Payload = d.b; d.bad || len(t.Name) == 0 || len(t.Command) == 0 {
		return t, fmt.Errorf("%w: a timer is cut short", ErrDamaged)
	}
	if len(t.Schedule) > 0 {
		_, err = DecodeSchedule(t.Schedule)
	}
	return t, err
}

// EntityEnd is what an entity's parts must have come to.
type EntityEnd struct {
	Entity    sharding.EntityID
	Sequence  Sequence
	Hash      Hash // the chain's link at Sequence
	Records   uint64
	Snapshots uint8
	Timers    uint32
}

// AppendEntityEnd appends the data of an end part: type (len u8), id (len u16),
// sequence u64, hash [32], records u64, snapshots u8, timers u32.
func AppendEntityEnd(dst []byte, e *EntityEnd) []byte {
	dst = append16(append8(dst, e.Entity.Type), e.Entity.ID)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.Sequence))
	dst = append(dst, e.Hash[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, e.Records)
	dst = append(dst, e.Snapshots)
	return binary.LittleEndian.AppendUint32(dst, e.Timers)
}

// DecodeEntityEnd reads the data of an end part.
func DecodeEntityEnd(data []byte) (e EntityEnd, err error) {
	d := decoder{b: data}
	e.Entity, e.Sequence = d.entity(), Sequence(d.u64())
	copy(e.Hash[:], d.take(32))
	e.Records, e.Snapshots, e.Timers = d.u64(), d.u8(), d.u32()
	if d.bad || len(d.b) != 0 {
		return e, fmt.Errorf("%w: the end of an entity is cut short", ErrDamaged)
	}
	return e, nil
}

// Count is a number that is kept for two entities, the first of which is in the
// shard.
type Count struct {
	Entity, Other sharding.EntityID
	Number        uint64
	// Of a pair: numbers above After and up to GivenUp were given up; zeros for
	// none.
	After, GivenUp uint64
}

// AppendPartCount appends the data of a pair or inbox part: type (len u8) and
// id (len u16) of the one, of the other, number u64.
func AppendPartCount(dst []byte, c *Count) []byte {
	dst = append16(append8(dst, c.Entity.Type), c.Entity.ID)
	dst = append16(append8(dst, c.Other.Type), c.Other.ID)
	dst = binary.LittleEndian.AppendUint64(dst, c.Number)
	if c.GivenUp == 0 {
		return dst
	}
	dst = binary.LittleEndian.AppendUint64(dst, c.After)
	return binary.LittleEndian.AppendUint64(dst, c.GivenUp)
}

// DecodePartCount reads the data of a pair or inbox part.
func DecodePartCount(data []byte) (c Count, err error) {
	d := decoder{b: data}
	c.Entity, c.Other, c.Number = d.entity(), d.entity(), d.u64()
	if len(d.b) > 0 {
		c.After, c.GivenUp = d.u64(), d.u64()
	}
	if d.bad || len(d.b) != 0 || c.Number == 0 {
		return c, fmt.Errorf("%w: a number of sends is cut short", ErrDamaged)
	}
	return c, nil
}

// Transfer is a message or a dead letter in a part. Body aliases what it was
// decoded from.
type Transfer struct {
	Entity sharding.EntityID // in whose shard it is: a message's source, a dead letter's destination, or its source where it has no number
	Body   []byte            // as it is stored
}

// AppendTransfer appends the data of a message or dead letter part: type (len
// u8), id (len u16), the stored body to the end.
func AppendTransfer(dst []byte, t *Transfer) []byte {
	return append(append16(append8(dst, t.Entity.Type), t.Entity.ID), t.Body...)
}

// DecodeTransfer reads the data of a message or dead letter part.
func DecodeTransfer(data []byte) (t Transfer, err error) {
	d := decoder{b: data}
	t.Entity = d.entity()
	if t.Body = d.b; d.bad || len(t.Body) == 0 {
		return t, fmt.Errorf("%w: a send is cut short", ErrDamaged)
	}
	return t, nil
}

func (d *decoder) entity() sharding.EntityID {
	return sharding.EntityID{Type: string(d.take(int(d.u8()))), ID: string(d.take(int(d.u16())))}
}

// PartEntity returns the entity whose shard a part belongs to.
func PartEntity(kind PartKind, data []byte) (e sharding.EntityID, err error) {
	switch kind {
	case PartRecord:
		var v RecordView
		err = v.Parse(data)
		return v.Entity(), err
	case PartSnapshot:
		var s Snapshot
		err = s.Decode(data)
		return s.Entity, err
	}
	d := decoder{b: data}
	if e = d.entity(); d.bad || e.Type == "" || e.ID == "" {
		return e, fmt.Errorf("%w: a part without an entity", ErrDamaged)
	}
	return e, nil
}

// ImportID names one import: every entry of it carries the same.
type ImportID [16]byte

// Import is the body of an entry that brings parts into a shard. Chunks of one
// import are numbered from 0 in each shard, and take effect in that order.
type Import struct {
	ID    ImportID
	Chunk uint64
	Last  bool // nothing more comes for the shard
	Parts []byte
}

const importVersion = 1

// ImportHeaderBytes is what an import's body has before its parts.
const ImportHeaderBytes = 1 + 16 + 8 + 1

// AppendImport appends the body of an import entry: version u8, id [16], chunk
// u64, flags u8 (bit 0: the last), parts to the end.
func AppendImport(dst []byte, i *Import) []byte {
	dst = append(dst, importVersion)
	dst = append(dst, i.ID[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, i.Chunk)
	flags := byte(0)
	if i.Last {
		flags = 1
	}
	return append(append(dst, flags), i.Parts...)
}

// DecodeImport reads the body of an import entry. Parts aliases it.
func DecodeImport(body []byte) (i Import, err error) {
	d := decoder{b: body}
	version := d.u8()
	copy(i.ID[:], d.take(16))
	i.Chunk = d.u64()
	flags := d.u8()
	switch i.Last, i.Parts = flags&1 != 0, d.b; {
	case d.bad:
		return i, fmt.Errorf("%w: an import is cut short", ErrDamaged)
	case version != importVersion || flags > 1:
		return i, fmt.Errorf("%w: import version %d, flags %#x", ErrUnsupported, version, flags)
	}
	return i, nil
}
