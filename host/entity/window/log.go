package window

import (
	"bytes"
	"hash/maphash"
	"slices"
)

// log is a window of many commands: packed one behind the other, with an
// index to find one by its id. It holds at least one.
type log struct {
	data    []byte // from head on
	head    int
	base    uint32 // of the place of data[0]; places count up and wrap round
	count   int
	replies int // bytes
	// slots is the index: places plus one by a hash of the id, 0 where free;
	// whoever finds its slot taken goes to the next. A power of two, at least
	// four thirds of count.
	slots []uint32
	seed  maphash.Seed

	weighed int64 // what Growth has returned, added up
}

func newLog(few string, count, replies int) *log {
	m := &log{data: make([]byte, 0, 2*len(few)), count: count, replies: replies, seed: maphash.MakeSeed()}
	m.data = append(m.data, few...)
	m.index(4 * max(count, 4))
	return m
}

// reserve makes room for so many more commands, which have so many bytes.
func (m *log) reserve(commands, size int) {
	if len(m.data)+size > cap(m.data) && m.head > len(m.data)/4 {
		m.compact()
	}
	m.data = slices.Grow(m.data, size)
	if slots := 4 * (m.count + commands + 1) / 3; slots > len(m.slots) {
		m.index(slots)
	}
}

func (m *log) first() entry[[]byte] {
	p, _ := next(m.data[m.head:])
	return p
}

// at returns the command that a slot says.
func (m *log) at(slot uint32) entry[[]byte] {
	p, _ := next(m.data[slot-1-m.base:])
	return p
}

// home is the slot that a name would like.
func (m *log) home(raw []byte) int {
	return int(maphash.Bytes(m.seed, raw)) & (len(m.slots) - 1)
}

func (m *log) find(n *name) (r Command, ok bool) {
	for i := m.home(n.packed()); m.slots[i] != 0; i = (i + 1) & (len(m.slots) - 1) {
		if p := m.at(m.slots[i]); p.is(n) {
			return p.open(), true
		}
	}
	return r, false
}

// add is Window.put. at is the time of the last command that it has forgotten.
func (m *log) add(l *Limits, n *name, r *Command) (at int64, final bool) {
	for m.count > 0 {
		p := m.first()
		keeps, last := l.keeps(m.count, m.replies, p.recordedAt(), p.server(), r)
		if keeps {
			break
		}
		at, final = max(at, p.recordedAt()), final || last
		m.forget()
	}
	m.push(n, r)
	return at, final
}

func (m *log) push(n *name, r *Command) {
	if len(m.data)+packedBytes(n, r) > cap(m.data) && m.head > len(m.data)/4 {
		m.compact()
	}
	if 4*(m.count+1) > 3*len(m.slots) {
		m.index(2 * len(m.slots))
	}
	place := m.base + uint32(len(m.data))
	if place+1 == 0 { // it would look like a free slot
		m.compact()
		m.base = 0
		m.index(len(m.slots))
		place = uint32(len(m.data))
	}
	m.data = appendPacked(m.data, n, r)
	m.count++
	m.replies += len(r.Reply)
	m.enter(place)
}

// enter makes the index find the command at a place by its name; one of the
// same name before it is found no more.
func (m *log) enter(place uint32) {
	p := m.at(place + 1)
	i := m.home(p.name())
	for m.slots[i] != 0 {
		if q := m.at(m.slots[i]); q.hex() == p.hex() && bytes.Equal(q.name(), p.name()) {
			break
		}
		i = (i + 1) & (len(m.slots) - 1)
	}
	m.slots[i] = place + 1
}

// forget lets the first command go.
func (m *log) forget() {
	p := m.first()
	m.leave(p.name(), m.base+uint32(m.head))
	m.head += len(p.b)
	m.count--
	m.replies -= len(p.reply())
}

// leave takes a place out of the index, unless a later command has its name,
// and closes the gap.
func (m *log) leave(raw []byte, place uint32) {
	mask := len(m.slots) - 1
	i := m.home(raw)
	for m.slots[i] != place+1 {
		if m.slots[i] == 0 {
			return
		}
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; m.slots[j] != 0; j = (j + 1) & mask {
		if home := m.home(m.at(m.slots[j]).name()); (j-home)&mask >= (j-i)&mask {
			m.slots[i] = m.slots[j]
			i = j
		}
	}
	m.slots[i] = 0
}

// compact gives the room of what was forgotten back.
func (m *log) compact() {
	m.base += uint32(m.head)
	m.data = slices.Delete(m.data, 0, m.head)
	m.head = 0
}

// index makes the index anew with so many slots, rounded up to a power of two.
func (m *log) index(slots int) {
	n := 16
	for n < slots {
		n *= 2
	}
	m.slots = make([]uint32, n)
	for at := m.head; at < len(m.data); {
		p, _ := next(m.data[at:])
		m.enter(m.base + uint32(at))
		at += len(p.b)
	}
}
