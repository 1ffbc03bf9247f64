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
	events     uint16
	server     bool
}

// dedupe is an entity's window of carried-out commands, oldest first. It is a
// function of the entity's records, so a replica that replays them remembers
// the same ids. Most entities have few commands to remember, and there may be
// millions of them: these are packed into one string, without a byte to spare.
type dedupe struct {
	few  string // packed commands, when there is no many
	many *memory
	// forgot is no earlier than the time of any command that the entity has
	// carried out and that is not in the window; 0 when it has them all.
	forgot int64
}

const (
	// fewCommands and fewBytes bound what is copied for each command that a
	// small window takes.
	fewCommands = 8
	fewBytes    = 1 << 10
)

// find returns the memory of id, with a copy of its reply, and whether it is
// young enough at log clock now to be live.
func (d *dedupe) find(w *Window, id journal.CommandID, now int64) (r remembered, ok, live bool) {
	n := nameOf(id)
	if d.many != nil {
		r, ok = d.many.find(&n)
	} else {
		var last packed[string]
		for rest := d.few; len(rest) > 0; {
			var p packed[string]
			if p, rest = next(rest); p.is(&n) {
				last, ok = p, true // those before it are too old
			}
		}
		if ok {
			r = last.open()
		}
	}
	return r, ok, ok && now-r.recordedAt <= w.age(r.server)
}

func (w *Window) age(server bool) int64 {
	if server {
		return w.ServerMaxAge
	}
	return w.ClientMaxAge
}

// holds reports whether a window of so many commands and bytes of replies keeps
// its first command, which is of that time, when r comes. If not, final says
// that no window keeps any command before it either: with fewer commands in it
// one that a client named may outlive a later one that the server did.
func (w *Window) holds(commands, replies int, recordedAt int64, server bool, r *remembered) (holds, final bool) {
	room := commands < w.Commands && replies+len(r.reply) <= w.ReplyBytes
	return room && r.recordedAt-recordedAt <= w.age(server), !room || !server
}

// full reports whether a window of so many commands and bytes of replies may
// have forgotten one for want of room: a reply is less than half of them.
func (w *Window) full(commands, replies int) bool {
	return commands >= w.Commands || replies > w.ReplyBytes/2
}

// add remembers r and forgets what the window no longer holds. It reports
// whether all that is older than the window is forgotten for good, as nothing
// is while it only grows.
func (d *dedupe) add(w *Window, r remembered) (final bool) {
	n := nameOf(r.id)
	return d.put(w, &n, &r)
}

// put is add for a command whose id is n.
func (d *dedupe) put(w *Window, n *name, r *remembered) (final bool) {
	if d.many != nil {
		at, final := d.many.add(w, n, r)
		d.forgot = max(d.forgot, at)
		return final
	}
	commands, replies := d.size()
	for len(d.few) > 0 {
		p, rest := next(d.few)
		holds, last := w.holds(commands, replies, p.recordedAt(), p.server(), r)
		if holds {
			break
		}
		commands, replies = commands-1, replies-len(p.reply())
		d.few, d.forgot, final = rest, max(d.forgot, p.recordedAt()), final || last
	}
	if commands < fewCommands && len(d.few)+packedBytes(n, r) <= fewBytes {
		var scratch [fewBytes]byte
		d.few = string(appendPacked(append(scratch[:0], d.few...), n, r))
		return final
	}
	d.many = newMemory(d.few, commands, replies)
	d.few = ""
	d.many.push(n, r)
	return final
}

// size is how many commands are remembered, and the bytes of their replies.
func (d *dedupe) size() (commands, replies int) {
	if d.many != nil {
		return d.many.count, d.many.replies
	}
	for rest := d.few; len(rest) > 0; commands++ {
		var p packed[string]
		p, rest = next(rest)
		replies += len(p.reply())
	}
	return commands, replies
}

// count is how many commands are remembered.
func (d *dedupe) count() (n int) {
	if d.many != nil {
		return d.many.count
	}
	for rest := d.few; len(rest) > 0; n++ {
		_, rest = next(rest)
	}
	return n
}

// oldest is the sequence after the first command that is remembered; false
// when none is.
func (d *dedupe) oldest() (at journal.Sequence, ok bool) {
	if d.many != nil {
		return d.many.first().sequence(), true
	}
	if d.few == "" {
		return 0, false
	}
	p, _ := next(d.few)
	return p.sequence(), true
}

// each calls fn with the ids that are remembered, the oldest first. The bytes
// are valid during the call.
func (d *dedupe) each(fn func(id []byte)) {
	if d.many != nil {
		eachID(d.many.data[d.many.head:], fn)
	} else {
		eachID(d.few, fn)
	}
}

func eachID[T bytestring](rest T, fn func(id []byte)) {
	text := make([]byte, 0, journal.MaxCommandIDBytes)
	for len(rest) > 0 {
		var p packed[T]
		p, rest = next(rest)
		fn(p.appendID(text))
	}
}
