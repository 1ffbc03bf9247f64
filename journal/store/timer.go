package store

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// In a key, the name of a timer is preceded by the incarnation of its entity,
// unless it is the first incarnation: 0 u8 and the incarnation u32, big endian.
// The incarnation counts how often the entity was deleted while it had timers.
// Names never begin with 0, so the rows of an entity's timers are grouped by
// incarnation, and the rows of the first incarnation come last.

const lifeBytes = 1 + 4

// AppendLife appends the prefix of a timer's name in a given incarnation of its
// entity.
func AppendLife(dst []byte, life uint32) []byte {
	if life == 0 {
		return dst
	}
	return binary.BigEndian.AppendUint32(append(dst, 0), life)
}

// CutLife is the inverse of AppendLife.
func CutLife(rest string) (life uint32, name string, err error) {
	if len(rest) == 0 || rest[0] != 0 {
		return 0, rest, nil
	}
	if len(rest) < lifeBytes {
		return 0, "", fmt.Errorf("%w: key of a timer without a name", journal.ErrDamaged)
	}
	return binary.BigEndian.Uint32([]byte(rest[1:lifeBytes])), rest[lifeBytes:], nil
}

// SplitTimer decodes the key of a timer: its entity, the entity's incarnation,
// and its name.
func SplitTimer(key string) (e sharding.EntityID, life uint32, name string, err error) {
	e, rest, err := SplitEntity(key)
	if err == nil {
		life, name, err = CutLife(rest)
	}
	return e, life, name, err
}

// A timer is stored twice. Its due time is in the entity row or, if that row is
// full, under the timer's entity and name. Its content is under its due time,
// entity and name.

// Timer is the stored content of a timer, without entity and name.
type Timer struct {
	Due              int64 // unix nanoseconds
	Command, Payload []byte
	Schedule         []byte // encoded by journal.AppendSchedule; empty for a timer that fires once
	Trace            *journal.TraceContext
}

const dueBytes = 8

// AppendDue appends a due time so that earlier times sort first: u64 big endian
// with the sign bit flipped. It starts the suffix of a due key, and is the body
// of a timer's value.
func AppendDue(dst []byte, due int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(due)^1<<63)
}

// DecodeDue is the inverse of AppendDue.
func DecodeDue(body []byte) (int64, error) {
	if len(body) != dueBytes {
		return 0, fmt.Errorf("%w: due time with %d bytes", journal.ErrDamaged, len(body))
	}
	return int64(binary.BigEndian.Uint64(body) ^ 1<<63), nil
}

// CutDue splits the suffix of a due key into the due time and the timer.
func CutDue(rest []byte) (due int64, timer []byte, err error) {
	if len(rest) <= dueBytes {
		return 0, nil, fmt.Errorf("%w: due key with %d bytes", journal.ErrDamaged, len(rest))
	}
	due, err = DecodeDue(rest[:dueBytes])
	return due, rest[dueBytes:], err
}

// AppendTimer appends the body of a due value: command (len u8), payload to the
// end. For a schedule, 0 u8 and the schedule (len u16) precede these. If the
// timer has a trace, 0 u8, 0 u16 and the trace precede everything.
func AppendTimer(dst []byte, t *Timer) []byte {
	if t.Trace != nil {
		dst = journal.AppendTraceContext(append(dst, 0, 0, 0), t.Trace)
	}
	if len(t.Schedule) > 0 {
		dst = binary.LittleEndian.AppendUint16(append(dst, 0), uint16(len(t.Schedule)))
		dst = append(dst, t.Schedule...)
	}
	dst = append(dst, byte(len(t.Command)))
	dst = append(dst, t.Command...)
	return append(dst, t.Payload...)
}

// DecodeTimer is the inverse of AppendTimer. Its slices alias body.
func DecodeTimer(body []byte, due int64) (Timer, error) {
	trace, body, err := cutTrace(body)
	if err != nil {
		return Timer{}, err
	}
	schedule, body, ok := cutSchedule(body)
	if !ok || len(body) < 2 || body[0] == 0 || len(body)-1 < int(body[0]) {
		return Timer{}, fmt.Errorf("%w: timer with %d bytes", journal.ErrDamaged, len(body))
	}
	n := 1 + int(body[0])
	return Timer{Due: due, Command: body[1:n:n], Payload: body[n:], Schedule: schedule, Trace: trace}, nil
}

// cutTrace removes the trace from the front of a timer's body, if there is one.
func cutTrace(body []byte) (trace *journal.TraceContext, rest []byte, err error) {
	const n = 3 + journal.TraceContextBytes
	if len(body) < n || body[0] != 0 || body[1] != 0 || body[2] != 0 {
		return nil, body, nil
	}
	c, err := journal.DecodeTraceContext(body[3:n])
	return &c, body[n:], err
}

// cutSchedule removes the schedule from the front of a timer's body, if there
// is one.
func cutSchedule(body []byte) (schedule, rest []byte, ok bool) {
	if len(body) == 0 || body[0] != 0 {
		return nil, body, true
	}
	if len(body) < 3 {
		return nil, nil, false
	}
	n := 3 + int(binary.LittleEndian.Uint16(body[1:]))
	if n == 3 || n > len(body) {
		return nil, nil, false
	}
	if _, err := journal.DecodeSchedule(body[3:n]); err != nil {
		return nil, nil, false
	}
	return body[3:n:n], body[n:], true
}

// timer checks that a timer has a row under its due time.
func (v *verifier) timer(k Key, body []byte) error {
	due, err := DecodeDue(body)
	if err != nil {
		return err
	}
	v.isDue(k, due)
	return nil
}

// headTimers checks that the timers stored in an entity row have rows under
// their due times.
func (v *verifier) headTimers(k Key, h *Head) {
	v.Timers += uint64(h.Timers)
	if len(h.Set) == 0 {
		return
	}
	life := AppendLife(slices.Clone(k.Suffix), h.Life)
	for name, due := range h.Set.All {
		v.generation.timers++
		k.Suffix = append(life[:len(life):len(life)], name...)
		v.isDue(k, due)
	}
}

func (v *verifier) isDue(k Key, due int64) {
	key := append(AppendDue(AppendPrefix(nil, k.Shard, k.Generation, ClassDue), due), k.Suffix...)
	found, err := v.view.Get(key, func([]byte) error { return nil })
	if err == nil && !found {
		v.problem(fmt.Sprintf("a timer of shard %d", k.Shard), "it is stored under a wrong due time")
	}
}

func (v *verifier) dueTimer(k Key, body []byte) error {
	due, _, err := CutDue(k.Suffix)
	if err == nil {
		_, err = DecodeTimer(body, due)
	}
	return err
}

// HeadTimers are the names and due times of the timers that are stored in the
// entity row itself. These are an entity's first few timers, so that setting or
// removing one of these timers writes only one more key, the key of the due
// time. The encoding is ordered by name, each timer as name str8, due i64. A
// value is never modified. The zero value is empty.
type HeadTimers string

const (
	// headTimersMost and headTimersBytes bound the timers in an entity row.
	// Further timers have rows of ClassTimer.
	headTimersMost  = 4
	headTimersBytes = 128
)

// TimerRows reports whether the entity has timers that are not in its entity
// row.
func (h *Head) TimerRows() bool { return int64(h.Timers) > int64(h.Set.Len()) }

// cut returns the first timer and the rest.
func (t HeadTimers) cut() (name string, due int64, rest HeadTimers) {
	n := 1 + int(t[0])
	return string(t[1:n]), int64(binary.LittleEndian.Uint64([]byte(t[n : n+dueBytes]))), t[n+dueBytes:]
}

// Len returns the number of timers.
func (t HeadTimers) Len() (n int) {
	for range t.All {
		n++
	}
	return n
}

// All yields each name with its due time, ordered by name.
func (t HeadTimers) All(yield func(name string, due int64) bool) {
	for len(t) > 0 {
		var name string
		var due int64
		if name, due, t = t.cut(); !yield(name, due) {
			return
		}
	}
}

// Find returns the due time of a timer.
func (t HeadTimers) Find(name string) (due int64, ok bool) {
	for at, due := range t.All {
		if at == name {
			return due, true
		}
	}
	return 0, false
}

// With returns the timers with one timer added or replaced, and false if it
// does not fit.
func (t HeadTimers) With(name string, due int64) (HeadTimers, bool) {
	others := t.Without(name)
	size := len(others) + 1 + len(name) + dueBytes
	if size > headTimersBytes || others.Len() == headTimersMost {
		return t, false
	}
	after := others
	for len(after) > 0 {
		at, _, rest := after.cut()
		if at > name {
			break
		}
		after = rest
	}
	dst := make([]byte, 0, size)
	dst = append(dst, others[:len(others)-len(after)]...)
	dst = append(append(dst, byte(len(name))), name...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(due))
	return HeadTimers(append(dst, after...)), true
}

// Without returns the timers except the named timer.
func (t HeadTimers) Without(name string) HeadTimers {
	for rest := t; len(rest) > 0; {
		before := len(t) - len(rest)
		at, _, after := rest.cut()
		if at == name {
			return t[:before] + after
		}
		rest = after
	}
	return t
}

// whole reports whether the bytes are a valid encoding.
func (t HeadTimers) whole() bool {
	if len(t) == 0 || len(t) > headTimersBytes {
		return false
	}
	last := ""
	for n := 1; len(t) > 0; n++ {
		if n > headTimersMost || len(t) < 1+int(t[0])+dueBytes {
			return false
		}
		name, _, rest := t.cut()
		if name <= last || strings.IndexByte(name, 0) >= 0 {
			return false
		}
		last, t = name, rest
	}
	return true
}
