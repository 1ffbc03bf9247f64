package journal

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// SectionKind says what a section of a record carries. A record has at most
// one of each kind, in ascending order.
type SectionKind uint8

const (
	// SectionFuel is what the command cost: u64.
	SectionFuel SectionKind = 1
	// SectionSource is what made the command, when no client did: Source.
	SectionSource SectionKind = 2
	// SectionTimers is the timers that the command set and cancelled, in
	// order: TimerOp.
	SectionTimers SectionKind = 3
	// SectionMessages is the messages that the command made, in order: MessageOp.
	SectionMessages SectionKind = 4
	// SectionRefusal says that the message which made the command was not carried
	// out: Refusal.
	SectionRefusal SectionKind = 5
	// SectionPrincipal is who made the command, where the entity's type keeps
	// that: the bytes are the host's.
	SectionPrincipal SectionKind = 8
)

const lastSection = SectionTrace

// Section is a part of a record that most records do not have. It is no part
// of the hash chain.
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

// nextSection takes the first section off b; last is the kind before it.
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

// Section returns the data of the record's section of the kind, nil if it has
// none.
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

// Section is RecordView.Section.
func (r *Record) Section(kind SectionKind) []byte {
	for i := range r.Sections {
		if r.Sections[i].Kind == kind {
			return r.Sections[i].Data
		}
	}
	return nil
}

// Internal reports that the command came from within: no client knows its id.
func (r *Record) Internal() bool { return r.Section(SectionSource) != nil }

// Sources of a command, the first byte of a source section.
const (
	// SourceTimer is one of the entity's own timers.
	SourceTimer = 2
)

// TimerSource is the timer that made a command. The record takes effect only
// while the entity has that timer with that due time, and ends it.
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

// DecodeTimerSource reads the data of a source section. Name aliases it.
func DecodeTimerSource(data []byte) (s TimerSource, err error) {
	d := decoder{b: data}
	if kind := d.u8(); kind != SourceTimer {
		return s, fmt.Errorf("%w: source %d", ErrUnsupported, kind)
	}
	s.Name = d.take(int(d.u8()))
	s.Due = int64(d.u64())
	if d.bad || len(d.b) != 0 {
		return s, errRunsPast()
	}
	return s, nil
}

// TimerOp sets a timer of the entity, or cancels it when it has no command. A
// timer has a name of its own in its entity; setting it again replaces it.
type TimerOp struct {
	Name    []byte // 1..255 bytes, without a zero byte
	Cancel  bool
	Due     int64  // unix nanoseconds of the log clock
	Command []byte // 1..255 bytes; what the entity gets when it is due
	Payload []byte
}

// AppendTimerOp appends one op to the data of a timers section: name (len u8),
// command (len u8, 0 cancels), and when it sets: due i64, payload (len u32).
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

// NextTimerOp takes the first op off the data of a timers section; it must not
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
		return op, nil, fmt.Errorf("%w: a timer is cut short", ErrDamaged)
	}
	return op, d.b, nil
}

// Timer is a timer that is set.
type Timer struct {
	Entity           sharding.EntityID
	Name             string
	Due              int64 // unix nanoseconds of the log clock
	Command, Payload []byte
	Schedule         *Schedule // nil of a timer that fires once
	// Trace is the span of the command that set it; nil of one whose trace is not
	// sampled, and of a timer to which another one led.
	Trace *TraceContext
}
