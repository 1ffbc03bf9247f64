package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// RecordView reads a record in place: every slice aliases the parsed bytes and
// is valid as long as they are. Apply and replay use RecordView; callers that
// keep fields use Record.
type RecordView struct {
	Raw         []byte // framing included
	Flags       uint8
	Type, ID    []byte // of the entity
	Term        sharding.Term
	RecordedAt  int64
	Expected    Sequence
	Prev        Hash
	Module      []byte // 32 bytes
	CommandHash uint64
	CommandID   []byte
	Reply       []byte
	EventCount  int

	events, sections []byte
}

// recordFixedBytes is the size of the fields between the entity id and the
// command id.
const recordFixedBytes = 8 + 8 + 8 + 32 + 32 + 8

// Parse points v into raw, one complete record as returned by SplitRecord. It
// walks every field, so a successfully parsed view has no field past the
// record's end. It allocates nothing. The errors are those of Record.Decode.
func (v *RecordView) Parse(raw []byte) error {
	if len(raw) < 10 {
		return fmt.Errorf("%w: short record", ErrDamaged)
	}
	if raw[8] != recordVersion {
		return fmt.Errorf("%w: version %d", ErrUnsupported, raw[8])
	}
	v.Raw, v.Flags = raw, raw[9]
	b := raw[10:]
	var ok bool
	if v.Type, b, ok = take8(b); !ok || len(b) < 2 {
		return errRunsPast()
	}
	n := int(binary.LittleEndian.Uint16(b))
	if b = b[2:]; len(b) < n+recordFixedBytes {
		return errRunsPast()
	}
	v.ID, b = b[:n:n], b[n:]
	v.Term = sharding.Term(binary.LittleEndian.Uint64(b))
	v.RecordedAt = int64(binary.LittleEndian.Uint64(b[8:]))
	v.Expected = Sequence(binary.LittleEndian.Uint64(b[16:]))
	v.Prev = Hash(b[24:56])
	v.Module = b[56:88:88]
	v.CommandHash = binary.LittleEndian.Uint64(b[88:])
	if v.CommandID, b, ok = take8(b[recordFixedBytes:]); !ok {
		return errRunsPast()
	}
	if v.Reply, b, ok = take32(b); !ok || len(b) < 2 {
		return errRunsPast()
	}
	v.EventCount = int(binary.LittleEndian.Uint16(b))
	v.events = b[2:]
	c := v.Events()
	for c.Next() {
	}
	if c.bad {
		return errRunsPast()
	}
	v.sections = c.b
	for b, last := c.b, SectionKind(0); len(b) > 0; {
		s, rest, err := nextSection(b, last)
		if err != nil {
			return err
		}
		b, last = rest, s.Kind
	}
	return nil
}

// HasSections reports whether the record has any section.
func (v *RecordView) HasSections() bool { return len(v.sections) > 0 }

// Last returns the entity's sequence after the record.
func (v *RecordView) Last() Sequence { return v.Expected + Sequence(v.EventCount) }

// Entity returns the entity's id. It copies the names.
func (v *RecordView) Entity() sharding.EntityID {
	return sharding.EntityID{Type: string(v.Type), ID: string(v.ID)}
}

// Events returns a cursor before the first event.
func (v *RecordView) Events() EventCursor {
	return EventCursor{b: v.events, left: v.EventCount}
}

// EventCursor walks a view's events. Its slices alias the record.
type EventCursor struct {
	Type, Payload []byte
	TagCount      int

	tags, b []byte
	left    int
	bad     bool
}

// Next moves to the next event and reports whether there is one.
func (c *EventCursor) Next() bool {
	if c.left == 0 || c.bad {
		return false
	}
	c.left--
	b := c.b
	var ok bool
	if c.Type, b, ok = take8(b); !ok {
		return c.fail()
	}
	if c.Payload, b, ok = take32(b); !ok || len(b) < 1 {
		return c.fail()
	}
	c.TagCount = int(b[0])
	b = b[1:]
	c.tags = b
	for i := 0; i < c.TagCount; i++ {
		if _, b, ok = take8(b); !ok {
			return c.fail()
		}
	}
	c.tags = c.tags[:len(c.tags)-len(b)]
	c.b = b
	return true
}

// RawTags returns the event's tags as encoded in the record: TagCount times a
// length byte and the bytes.
func (c *EventCursor) RawTags() []byte { return c.tags }

func (c *EventCursor) fail() bool {
	c.bad = true
	return false
}

// AfterView returns the link after all of the view's events, starting at prev.
// It equals After, and does not allocate once its scratch buffer has grown.
func (c *Chain) AfterView(prev Hash, v *RecordView) Hash {
	cur := v.Events()
	for seq := uint64(v.Expected) + 1; cur.Next(); seq++ {
		b := append(c.buf[:0], prev[:]...)
		b = binary.LittleEndian.AppendUint64(b, seq)
		b = binary.LittleEndian.AppendUint64(b, uint64(v.Term))
		b = binary.LittleEndian.AppendUint64(b, uint64(v.RecordedAt))
		b = append(b, v.Module...)
		b = appendLongBytes(b, cur.Type)
		b = appendLongBytes(b, cur.Payload)
		b = appendLongBytes(b, v.CommandID)
		b = binary.LittleEndian.AppendUint32(b, uint32(cur.TagCount))
		for tags := cur.tags; len(tags) > 0; {
			var t []byte
			t, tags, _ = take8(tags)
			b = appendLongBytes(b, t)
		}
		c.buf = b
		prev = sha256.Sum256(b)
	}
	return prev
}

func appendLongBytes(b, s []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

func take8(b []byte) (field, rest []byte, ok bool) {
	if len(b) < 1 || len(b)-1 < int(b[0]) {
		return nil, nil, false
	}
	n := 1 + int(b[0])
	return b[1:n:n], b[n:], true
}

func take32(b []byte) (field, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if uint64(len(b)-4) < n {
		return nil, nil, false
	}
	return b[4 : 4+n : 4+n], b[4+n:], true
}

func errRunsPast() error {
	return fmt.Errorf("%w: fields run past the record's end", ErrDamaged)
}
