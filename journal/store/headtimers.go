package store

import (
	"encoding/binary"
	"strings"
)

// HeadTimers are the names and due times of the timers that a head holds
// itself: the first few of an entity, so that setting and ending them touches
// no key but that of the due time. In the order of the names, each: name str8,
// due i64. A value is never modified; the zero value has none.
type HeadTimers string

const (
	// headTimersMost and headTimersBytes bound what a head holds: the rest is
	// under ClassTimer.
	headTimersMost  = 4
	headTimersBytes = 128
)

// TimerRows reports whether the entity has timers that its head does not hold.
func (h *Head) TimerRows() bool { return int64(h.Timers) > int64(h.Set.Len()) }

// cut takes the first timer off.
func (t HeadTimers) cut() (name string, due int64, rest HeadTimers) {
	n := 1 + int(t[0])
	return string(t[1:n]), int64(binary.LittleEndian.Uint64([]byte(t[n : n+dueBytes]))), t[n+dueBytes:]
}

// Len is how many there are.
func (t HeadTimers) Len() (n int) {
	for range t.All {
		n++
	}
	return n
}

// All yields each name with its due time, in the order of the names.
func (t HeadTimers) All(yield func(name string, due int64) bool) {
	for len(t) > 0 {
		var name string
		var due int64
		if name, due, t = t.cut(); !yield(name, due) {
			return
		}
	}
}

// Find returns when a timer is due.
func (t HeadTimers) Find(name string) (due int64, ok bool) {
	for at, due := range t.All {
		if at == name {
			return due, true
		}
	}
	return 0, false
}

// With returns the timers with one that is set, or set again; false when there
// is no room for it.
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

// Without returns the timers without one.
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

// whole reports whether bytes are timers that a head holds.
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
