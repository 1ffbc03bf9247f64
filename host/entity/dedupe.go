package entity

import (
	"github.com/hostd/hostd/journal"
)

// Window bounds what an entity remembers of the commands it has carried out:
// whichever bound is reached first forgets the oldest.
type Window struct {
	Commands     int   // default 10,000
	ReplyBytes   int   // default 4 MiB
	ClientMaxAge int64 // nanoseconds of the log clock, default 24 h
	ServerMaxAge int64 // for ids the server made, default 5 min
}

// DefaultWindow is the window every replica uses: what is remembered is a
// function of the journal alone, so it must not differ between nodes.
func DefaultWindow() Window {
	const second = 1_000_000_000
	return Window{Commands: 10_000, ReplyBytes: 4 << 20, ClientMaxAge: 24 * 3600 * second, ServerMaxAge: 300 * second}
}

// remembered is one carried-out command.
type remembered struct {
	id         journal.CommandID
	hash       uint64
	reply      []byte
	recordedAt int64
	sequence   journal.Sequence
	proposal   uint64 // the proposal that carries it in this term; 0 when it came from the journal
	events     uint16
	server     bool
}

// indexAbove is the size from which a map finds an id; below it a scan does,
// so that a small entity costs no map.
const indexAbove = 12

// dedupe is an entity's window of carried-out commands, oldest first. It is a
// function of the entity's records, so a replica that replays them remembers
// the same ids.
type dedupe struct {
	ring  []remembered // ring[head:] then ring[:head] when full; see at
	head  int
	count int
	bytes int
	first uint64 // number of the oldest one held; numbers count up for ever
	index map[journal.CommandID]uint64
}

func (d *dedupe) at(i int) *remembered { return &d.ring[(d.head+i)%len(d.ring)] }

// find returns the live memory of id at log clock now, or nil. The pointer is
// valid until the next add.
func (d *dedupe) find(w *Window, id journal.CommandID, now int64) *remembered {
	var r *remembered
	if d.index != nil {
		n, ok := d.index[id]
		if !ok {
			return nil
		}
		r = d.at(int(n - d.first))
	} else {
		for i := d.count - 1; i >= 0; i-- {
			if c := d.at(i); c.id == id {
				r = c
				break
			}
		}
	}
	if r == nil || now-r.recordedAt > w.age(r.server) {
		return nil
	}
	return r
}

func (w *Window) age(server bool) int64 {
	if server {
		return w.ServerMaxAge
	}
	return w.ClientMaxAge
}

// add remembers r and forgets what the window no longer holds.
func (d *dedupe) add(w *Window, r remembered) {
	for d.count > 0 {
		old := d.at(0)
		if d.count < w.Commands && d.bytes+len(r.reply) <= w.ReplyBytes && r.recordedAt-old.recordedAt <= w.age(old.server) {
			break
		}
		d.forget()
	}
	if d.count == len(d.ring) {
		d.grow()
	}
	*d.at(d.count) = r
	n := d.first + uint64(d.count)
	d.count++
	d.bytes += len(r.reply)
	switch {
	case d.index != nil:
		d.index[r.id] = n
	case d.count > indexAbove:
		d.index = make(map[journal.CommandID]uint64, 2*d.count)
		for i := 0; i < d.count; i++ {
			d.index[d.at(i).id] = d.first + uint64(i)
		}
	}
}

func (d *dedupe) forget() {
	old := d.at(0)
	d.bytes -= len(old.reply)
	if d.index != nil && d.index[old.id] == d.first {
		delete(d.index, old.id)
	}
	*old = remembered{}
	d.head = (d.head + 1) % len(d.ring)
	d.first++
	d.count--
}

func (d *dedupe) grow() {
	size := 2 * len(d.ring)
	if size == 0 {
		size = 1
	}
	ring := make([]remembered, size)
	for i := 0; i < d.count; i++ {
		ring[i] = *d.at(i)
	}
	d.ring, d.head = ring, 0
}
