package journal

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// A part is a piece of a shard's content, exported from one cluster and
// imported into another. It contains neither the shard nor log positions. The
// parts of an entity are contiguous: its records in order, its snapshots, its
// timers, its end.

// PartKind is the kind of a part.
type PartKind uint8

const (
	// PartRecord is a Record, including its framing.
	PartRecord PartKind = 1
	// PartSnapshot is a Snapshot, including its framing.
	PartSnapshot PartKind = 2
	// PartTimer is a set timer: PartialTimer.
	PartTimer PartKind = 3
	// PartEnd ends an entity: EntityEnd.
	PartEnd PartKind = 4
	// PartMessage is an unacknowledged message: Transfer.
	PartMessage PartKind = 5
	// PartPair is the last number assigned to a message of a channel (source,
	// destination): Count.
	PartPair PartKind = 6
	// PartInbox is the highest number that a destination has received from a
	// source: Count, of the destination and the source.
	PartInbox PartKind = 7
	// PartDeadLetter is a dead letter: Transfer.
	PartDeadLetter PartKind = 8
)

const lastPart = PartDeadLetter

// PartHeaderBytes is the size of a part's header.
const PartHeaderBytes = 5

// AppendPart appends one part: kind u8, length u32, data.
func AppendPart(dst []byte, kind PartKind, data []byte) []byte {
	dst = append(dst, byte(kind))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(data)))
	return append(dst, data...)
}

// NextPart decodes the first part of b, which must not be empty. Data aliases
// b.
func NextPart(b []byte) (kind PartKind, data, rest []byte, err error) {
	kind = PartKind(b[0])
	data, rest, ok := take32(b[1:])
	switch {
	case kind == 0 || kind > lastPart:
		return 0, nil, nil, fmt.Errorf("%w: import part of kind %d", ErrUnsupported, kind)
	case !ok:
		return 0, nil, nil, fmt.Errorf("%w: truncated part", ErrDamaged)
	}
	return kind, data, rest, nil
}

// PartialTimer is a timer in a part. Its slices alias the decoded bytes.
type PartialTimer struct {
	Entity           sharding.EntityID
	Name             []byte
	Due              int64 // unix nanoseconds of the log clock
	Command, Payload []byte
	Schedule         []byte // encoded by AppendSchedule; empty for a timer that fires once
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

// DecodePartialTimer decodes a timer part.
func DecodePartialTimer(data []byte) (t PartialTimer, err error) {
	d := decoder{b: data}
	t.Entity = d.entity()
	t.Name, t.Due, t.Command, t.Schedule = d.take(int(d.u8())), int64(d.u64()), d.take(int(d.u8())), d.take(int(d.u32()))
	if t.Payload = d.b; d.bad || len(t.Name) == 0 || len(t.Command) == 0 {
		return t, fmt.Errorf("%w: truncated timer", ErrDamaged)
	}
	if len(t.Schedule) > 0 {
		_, err = DecodeSchedule(t.Schedule)
	}
	return t, err
}

// EntityEnd holds the totals that an entity's parts must match.
type EntityEnd struct {
	Entity    sharding.EntityID
	Sequence  Sequence
	Hash      Hash // the hash chain's link at Sequence
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

// DecodeEntityEnd decodes an end part.
func DecodeEntityEnd(data []byte) (e EntityEnd, err error) {
	d := decoder{b: data}
	e.Entity, e.Sequence = d.entity(), Sequence(d.u64())
	copy(e.Hash[:], d.take(32))
	e.Records, e.Snapshots, e.Timers = d.u64(), d.u8(), d.u32()
	if d.bad || len(d.b) != 0 {
		return e, fmt.Errorf("%w: truncated entity end", ErrDamaged)
	}
	return e, nil
}

// Count is the counter of a pair of entities. The first entity of the pair is
// in the shard.
type Count struct {
	Entity, Other sharding.EntityID
	Number        uint64
	// For PartPair: the messages with numbers above After and up to GivenUp
	// were abandoned. Both are 0 if no message was abandoned.
	After, GivenUp uint64
}

// AppendPartCount appends the data of a pair or inbox part: type (len u8) and
// id (len u16) of both entities, number u64, and if numbers were abandoned
// after u64 and given up u64.
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

// DecodePartCount decodes a pair or inbox part.
func DecodePartCount(data []byte) (c Count, err error) {
	d := decoder{b: data}
	c.Entity, c.Other, c.Number = d.entity(), d.entity(), d.u64()
	if len(d.b) > 0 {
		c.After, c.GivenUp = d.u64(), d.u64()
	}
	if d.bad || len(d.b) != 0 || c.Number == 0 {
		return c, fmt.Errorf("%w: truncated message number", ErrDamaged)
	}
	return c, nil
}

// Transfer is a message or a dead letter in a part. Body aliases the decoded
// bytes.
type Transfer struct {
	Entity sharding.EntityID // whose shard holds it: a message's source; a dead letter's destination, or its source if it has no number
	Body   []byte            // as stored
}

// AppendTransfer appends the data of a message or dead letter part: type (len
// u8), id (len u16), the stored body to the end.
func AppendTransfer(dst []byte, t *Transfer) []byte {
	return append(append16(append8(dst, t.Entity.Type), t.Entity.ID), t.Body...)
}

// DecodeTransfer decodes a message or dead letter part.
func DecodeTransfer(data []byte) (t Transfer, err error) {
	d := decoder{b: data}
	t.Entity = d.entity()
	if t.Body = d.b; d.bad || len(t.Body) == 0 {
		return t, fmt.Errorf("%w: truncated message", ErrDamaged)
	}
	return t, nil
}

func (d *decoder) entity() sharding.EntityID {
	return sharding.EntityID{Type: string(d.take(int(d.u8()))), ID: string(d.take(int(d.u16())))}
}

// PartEntity returns the entity whose shard the part belongs to.
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
		return e, fmt.Errorf("%w: import part without an entity", ErrDamaged)
	}
	return e, nil
}

// ImportID identifies an import. All entries of the import carry the id.
type ImportID [16]byte

// Import is the body of an import entry, which adds parts to a shard. The
// chunks of an import are numbered from 0 in each shard and take effect in that
// order.
type Import struct {
	ID    ImportID
	Chunk uint64
	Last  bool // no further chunk follows for the shard
	Parts []byte
}

const importVersion = 1

// ImportHeaderBytes is the size of an import's body before its parts.
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

// DecodeImport decodes the body of an import entry. Parts aliases it.
func DecodeImport(body []byte) (i Import, err error) {
	d := decoder{b: body}
	version := d.u8()
	copy(i.ID[:], d.take(16))
	i.Chunk = d.u64()
	flags := d.u8()
	switch i.Last, i.Parts = flags&1 != 0, d.b; {
	case d.bad:
		return i, fmt.Errorf("%w: truncated import", ErrDamaged)
	case version != importVersion || flags > 1:
		return i, fmt.Errorf("%w: import version %d, flags %#x", ErrUnsupported, version, flags)
	}
	return i, nil
}
