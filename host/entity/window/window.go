package window

import "github.com/hostd/hostd/journal"

// Limits bound the commands that an entity remembers. When any limit is
// exceeded, the oldest command is forgotten.
type Limits struct {
	Commands     int   // number of commands, default 10,000
	ReplyBytes   int   // bytes of all replies, default 4 MiB
	ClientMaxAge int64 // maximum age of ids that a client made, in nanoseconds of the log clock, default 24 h
	ServerMaxAge int64 // maximum age of ids that the server made, default 5 min
}

// DefaultLimits are the limits of every replica. They must not differ between
// nodes, because the window must be a function of the journal alone.
func DefaultLimits() Limits {
	const second = 1_000_000_000
	return Limits{Commands: 10_000, ReplyBytes: 4 << 20, ClientMaxAge: 24 * 3600 * second, ServerMaxAge: 300 * second}
}

// Command is an executed command.
type Command struct {
	ID         journal.CommandID
	Hash       uint64 // hash of the name and the payload
	Reply      []byte
	RecordedAt int64 // unix nanoseconds of the log clock
	Sequence   journal.Sequence
	Events     uint16
	Server     bool // the server made the id
}

// Window is an entity's idempotency window: its executed commands, oldest
// first. It is a function of the entity's records, so a replica that replays
// them remembers the same ids.
//
// Most entities have few commands to remember, and there may be millions of
// entities, so up to fewCommands are packed into a string without spare
// capacity. A larger window is a log with an index.
type Window struct {
	few  string // packed commands, if many is nil
	many *log
	// forgot is an upper bound for the times of executed commands that are not
	// in the window, or 0 if the window has all of them.
	forgot int64
}

const (
	// fewCommands and fewBytes bound the bytes that are copied for each command
	// added to a small window.
	fewCommands = 8
	fewBytes    = 1 << 10
)

// Find returns the remembered command with this id, with a copy of its reply,
// and whether it is within the maximum age at log clock now.
func (w *Window) Find(l *Limits, id journal.CommandID, now int64) (r Command, ok, live bool) {
	n := nameOf(id)
	if w.many != nil {
		r, ok = w.many.find(&n)
	} else {
		var last entry[string]
		for rest := w.few; len(rest) > 0; {
			var p entry[string]
			if p, rest = next(rest); p.is(&n) {
				last, ok = p, true // earlier commands with this id are too old
			}
		}
		if ok {
			r = last.open()
		}
	}
	return r, ok, ok && now-r.RecordedAt <= l.age(r.Server)
}

func (l *Limits) age(server bool) int64 {
	if server {
		return l.ServerMaxAge
	}
	return l.ClientMaxAge
}

// keeps reports whether a window keeps its first command when r is added.
// commands and replies are the size of the window; recordedAt and server
// describe its first command. If the command is dropped, final reports whether
// every earlier command is out of the window for good too. final is false if a
// command with a server id was dropped for its age, because an earlier command
// with a client id may live longer.
func (l *Limits) keeps(commands, replies int, recordedAt int64, server bool, r *Command) (keeps, final bool) {
	room := commands < l.Commands && replies+len(r.Reply) <= l.ReplyBytes
	return room && r.RecordedAt-recordedAt <= l.age(server), !room || !server
}

// Full reports whether a window of this size may have forgotten a command for
// lack of room. More than half of ReplyBytes counts as full, because a single
// reply is smaller than the other half.
func (l *Limits) Full(commands, replies int) bool {
	return commands >= l.Commands || replies > l.ReplyBytes/2
}

// Add remembers r and forgets the commands that exceed the limits. final
// reports that every command older than the window is forgotten for good; it is
// false if Add forgets nothing.
func (w *Window) Add(l *Limits, r Command) (final bool) {
	n := nameOf(r.ID)
	return w.put(l, &n, &r)
}

// put implements Add for a command whose id is n.
func (w *Window) put(l *Limits, n *name, r *Command) (final bool) {
	if w.many != nil {
		at, final := w.many.add(l, n, r)
		w.forgot = max(w.forgot, at)
		return final
	}
	commands, replies := w.Size()
	for len(w.few) > 0 {
		p, rest := next(w.few)
		keeps, last := l.keeps(commands, replies, p.recordedAt(), p.server(), r)
		if keeps {
			break
		}
		commands, replies = commands-1, replies-len(p.reply())
		w.few, w.forgot, final = rest, max(w.forgot, p.recordedAt()), final || last
	}
	if commands < fewCommands && len(w.few)+packedBytes(n, r) <= fewBytes {
		var scratch [fewBytes]byte
		w.few = string(appendPacked(append(scratch[:0], w.few...), n, r))
		return final
	}
	w.many = newLog(w.few, commands, replies)
	w.few = ""
	w.many.push(n, r)
	return final
}

// Size returns the number of remembered commands and the bytes of their
// replies.
func (w *Window) Size() (commands, replies int) {
	if w.many != nil {
		return w.many.count, w.many.replies
	}
	for rest := w.few; len(rest) > 0; commands++ {
		var p entry[string]
		p, rest = next(rest)
		replies += len(p.reply())
	}
	return commands, replies
}

// Growth returns the change of the window's memory in bytes since the last
// call. It is always 0 if Small returns true.
func (w *Window) Growth() (bytes int64) {
	if w.many == nil {
		return 0
	}
	now := int64(cap(w.many.data) + 4*cap(w.many.slots))
	bytes, w.many.weighed = now-w.many.weighed, now
	return bytes
}

// Weight is the sum of all results of Growth.
func (w *Window) Weight() int64 {
	if w.many == nil {
		return 0
	}
	return w.many.weighed
}

// Count is the number of remembered commands.
func (w *Window) Count() (n int) {
	if w.many != nil {
		return w.many.count
	}
	for rest := w.few; len(rest) > 0; n++ {
		_, rest = next(rest)
	}
	return n
}

// Oldest returns the sequence after the first remembered command, and false if
// there is none.
func (w *Window) Oldest() (at journal.Sequence, ok bool) {
	if w.many != nil {
		return w.many.first().sequence(), true
	}
	if w.few == "" {
		return 0, false
	}
	p, _ := next(w.few)
	return p.sequence(), true
}

// each calls fn with the remembered ids, the oldest first. The bytes are valid
// during the call.
func (w *Window) each(fn func(id []byte)) {
	if w.many != nil {
		eachID(w.many.data[w.many.head:], fn)
	} else {
		eachID(w.few, fn)
	}
}

func eachID[T bytestring](rest T, fn func(id []byte)) {
	text := make([]byte, 0, journal.MaxCommandIDBytes)
	for len(rest) > 0 {
		var p entry[T]
		p, rest = next(rest)
		fn(p.appendID(text))
	}
}

// AddAll adds the commands of a batch. After each command, follow returns the
// filter to which the command's id must be added, or nil.
func (w *Window) AddAll(l *Limits, batch Batch, follow func(final bool) *Filter) {
	var text [64]byte
	reserved := false
	for left, rest := batch.count, batch.packed; left > 0; left-- {
		if m := w.many; m != nil && !reserved {
			m.reserve(min(left, l.Commands), len(rest))
			reserved = true
		}
		var p entry[[]byte]
		p, rest = next(rest)
		n, r := p.decodeName(), borrow(p)
		final := w.put(l, &n, &r)
		if f := follow(final); f != nil {
			f.set(spread(n.appendText(text[:0])))
		}
	}
}

// AtMost reports whether at most n commands are remembered.
func (w *Window) AtMost(n int) bool {
	return w.many == nil && fewCommands <= n || w.Count() <= n
}

// Small returns the packed commands of a window with few commands; ok is false
// for a larger window. Restore rebuilds the window from them and from Forgot.
func (w *Window) Small() (packed string, ok bool) { return w.few, w.many == nil }

// Restore returns the window that had these results of Small and Forgot.
func Restore(packed string, forgot int64) Window { return Window{few: packed, forgot: forgot} }

// Forgot is an upper bound for the times of executed commands that are not in
// the window, or 0 if the window has all of them.
func (w *Window) Forgot() int64 { return w.forgot }
