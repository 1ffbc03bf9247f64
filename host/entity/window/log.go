package window

import (
	"bytes"
	"hash/maphash"
	"slices"
)

// log is a window of many commands. They are packed one after another, with an
// index by id. A log has at least one command.
type log struct {
	data    []byte // commands begin at head; the commands before it are forgotten
	head    int
	base    uint32 // place of data[0]; a place is an offset since the log began, modulo 1<<32
	count   int
	replies int // bytes of all replies
	// slots is the index: a hash table by id with linear probing. A slot has a
	// place plus one, or 0 if it is free. The length is a power of two, at
	// least four thirds of count.
	slots []uint32
	seed  maphash.Seed

	weighed int64 // sum of the results of Growth
}

func newLog(few string, count, replies int) *log {
	m := &log{data: make([]byte, 0, 2*len(few)), count: count, replies: replies, seed: maphash.MakeSeed()}
	m.data = append(m.data, few...)
	m.index(4 * max(count, 4))
	return m
}

// reserve makes room for more commands that need size bytes in total.
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

// at returns the command of a slot.
func (m *log) at(slot uint32) entry[[]byte] {
	p, _ := next(m.data[slot-1-m.base:])
	return p
}

// home is the slot at which the search for a name begins.
func (m *log) home(raw []byte) int {
	return int(maphash.Bytes(m.seed, raw)) & (len(m.slots) - 1)
}

func (m *log) find(n *name) (r Command, ok bool) {
	for i := m.home(n.idBytes()); m.slots[i] != 0; i = (i + 1) & (len(m.slots) - 1) {
		if p := m.at(m.slots[i]); p.is(n) {
			return p.open(), true
		}
	}
	return r, false
}

// add implements Window.put. at is the latest time of the forgotten commands.
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
	if place+1 == 0 { // place+1 would mean a free slot
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

// enter adds the command at a place to the index. It replaces an earlier
// command with the same name.
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

// forget removes the first command.
func (m *log) forget() {
	p := m.first()
	m.leave(p.name(), m.base+uint32(m.head))
	m.head += len(p.b)
	m.count--
	m.replies -= len(p.reply())
}

// leave removes a place from the index, unless a later command has the same
// name, and moves later slots up to close the gap.
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

// compact frees the memory of forgotten commands.
func (m *log) compact() {
	m.base += uint32(m.head)
	m.data = slices.Delete(m.data, 0, m.head)
	m.head = 0
}

// index rebuilds the index with at least the given number of slots, rounded up
// to a power of two.
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
