package journal

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// SectionKind is the kind of a section in a record. A record has at most one
// section of each kind, in ascending order.
type SectionKind uint8

const (
	// SectionFuel is the fuel that the command consumed: u64.
	SectionFuel SectionKind = 1
	// SectionSource is the source of a command that no client sent:
	// TimerSource, MessageSource or a dead letter.
	SectionSource SectionKind = 2
	// SectionTimers holds the timers that the command set and cancelled, in
	// order: TimerOp.
	SectionTimers SectionKind = 3
	// SectionMessages holds the messages that the command sent, in order:
	// MessageOp.
	SectionMessages SectionKind = 4
	// SectionRefusal means that the message that caused the command was
	// rejected: Refusal.
	SectionRefusal SectionKind = 5
	// SectionPrincipal is the caller, if the entity's type records it. The host
	// defines the bytes.
	SectionPrincipal SectionKind = 8
)

const lastSection = SectionRun

// Section is an optional part of a record. It is not part of the hash chain.
type Section struct {
	Kind SectionKind
	Data []byte
}

func appendSections(dst []byte, sections []Section) []byte {
	for i := range sections {
		s := &sections[i]
		dst = append(dst, byte(s.Kind))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.Data)))
		dst = append(dst, s.Data...)
	}
	return dst
}

// nextSection decodes the first section of b. last is the kind of the previous
// section.
func nextSection(b []byte, last SectionKind) (s Section, rest []byte, err error) {
	kind := SectionKind(b[0])
	data, rest, ok := take32(b[1:])
	switch {
	case kind == 0 || kind > lastSection:
		return s, nil, fmt.Errorf("%w: unknown section %d", ErrUnsupported, kind)
	case !ok:
		return s, nil, errRunsPast()
	case kind <= last:
		return s, nil, fmt.Errorf("%w: section %d after %d", ErrDamaged, kind, last)
	}
	return Section{kind, data}, rest, nil
}

func sectionsBytes(sections []Section) (n int) {
	for i := range sections {
		n += 1 + 4 + len(sections[i].Data)
	}
	return n
}

// Section returns the data of the record's section of a kind, or nil.
func (v *RecordView) Section(kind SectionKind) []byte {
	for b, last := v.sections, SectionKind(0); len(b) > 0; {
		s, rest, err := nextSection(b, last)
		if err != nil {
			return nil
		}
		if s.Kind == kind {
			return s.Data
		}
		b, last = rest, s.Kind
	}
	return nil
}

// Section returns the data of the record's section of a kind, or nil.
func (r *Record) Section(kind SectionKind) []byte {
	for i := range r.Sections {
		if r.Sections[i].Kind == kind {
			return r.Sections[i].Data
		}
	}
	return nil
}

// Internal reports whether the command was not sent by a client, so that no
// client knows its id.
func (r *Record) Internal() bool { return r.Section(SectionSource) != nil }

// Sources of a command; the first byte of a source section.
const (
	// SourceTimer is a timer of the entity itself.
	SourceTimer = 2
)

// TimerSource is the timer that caused a command. The record takes effect only
// while the entity has that timer with that due time, and removes it.
type TimerSource struct {
	Name []byte
	Due  int64 // unix nanoseconds
}

// AppendTimerSource appends the data of a source section: u8 2, name (len
// u8), due i64.
func AppendTimerSource(dst []byte, s TimerSource) []byte {
	dst = append8(append(dst, SourceTimer), string(s.Name))
	return binary.LittleEndian.AppendUint64(dst, uint64(s.Due))
}

// DecodeTimerSource decodes a source section. Name aliases data.
func DecodeTimerSource(data []byte) (s TimerSource, err error) {
	d := decoder{b: data}
	if kind := d.u8(); kind != SourceTimer {
		return s, fmt.Errorf("%w: message source of kind %d", ErrUnsupported, kind)
	}
	s.Name = d.take(int(d.u8()))
	s.Due = int64(d.u64())
	if d.bad || len(d.b) != 0 {
		return s, errRunsPast()
	}
	return s, nil
}

// TimerOp sets a timer of the entity, or cancels the timer if Command is empty.
// Timer names are unique in an entity; setting a timer again replaces it.
type TimerOp struct {
	Name    []byte // 1 to 255 bytes, no zero bytes
	Cancel  bool
	Due     int64  // unix nanoseconds of the log clock
	Command []byte // 1 to 255 bytes; sent to the entity when the timer fires
	Payload []byte
}

// AppendTimerOp appends one operation to the data of a timers section: name
// (len u8), command (len u8, 0 cancels), and to set: due i64, payload (len
// u32).
func AppendTimerOp(dst []byte, op TimerOp) []byte {
	dst = append8(dst, string(op.Name))
	if op.Cancel {
		return append(dst, 0)
	}
	dst = append8(dst, string(op.Command))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(op.Due))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(op.Payload)))
	return append(dst, op.Payload...)
}

// NextTimerOp decodes the first operation of a timers section, which must not
// be empty. All slices alias data.
func NextTimerOp(data []byte) (op TimerOp, rest []byte, err error) {
	d := decoder{b: data}
	op.Name = d.take(int(d.u8()))
	op.Command = d.take(int(d.u8()))
	if op.Cancel = len(op.Command) == 0; !op.Cancel {
		op.Due = int64(d.u64())
		op.Payload = d.take(int(d.u32()))
	}
	if d.bad || len(op.Name) == 0 {
		return op, nil, fmt.Errorf("%w: truncated timer", ErrDamaged)
	}
	return op, d.b, nil
}

// Timer is a set timer.
type Timer struct {
	Entity           sharding.EntityID
	Name             string
	Due              int64 // unix nanoseconds of the log clock
	Command, Payload []byte
	Schedule         *Schedule // nil for a timer that fires once
	// Trace is the span of the command that set the timer. It is nil if the
	// trace is not sampled, and for a timer that was set as a consequence of
	// another timer.
	Trace *TraceContext
}
