package window

import "github.com/hostd/hostd/journal"

// Limits bound what an entity remembers of the commands it has carried out:
// whichever bound is reached first forgets the oldest.
type Limits struct {
	Commands     int   // default 10,000
	ReplyBytes   int   // default 4 MiB
	ClientMaxAge int64 // nanoseconds of the log clock, default 24 h
	ServerMaxAge int64 // for ids the server made, default 5 min
}

// DefaultLimits are those that every replica uses: what is remembered is a
// function of the journal alone, so they must not differ between nodes.
func DefaultLimits() Limits {
	const second = 1_000_000_000
	return Limits{Commands: 10_000, ReplyBytes: 4 << 20, ClientMaxAge: 24 * 3600 * second, ServerMaxAge: 300 * second}
}

// Command is one carried-out command.
type Command struct {
	ID         journal.CommandID
	Hash       uint64 // of its name and payload
	Reply      []byte
	RecordedAt int64 // unix nanoseconds of the log clock
	Sequence   journal.Sequence
	Events     uint16
	Server     bool // the id is one that the server made
}

// Window is an entity's window of carried-out commands, oldest first. It is a
// function of the entity's records, so a replica that replays them remembers
// the same ids. Most entities have few commands to remember, and there may be
// millions of them: these are packed into one string, without a byte to spare.
type Window struct {
	few  string // packed commands, when there is no many
	many *log
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

// Find returns what is remembered of id, with a copy of its reply, and whether
// it is young enough at log clock now to be live.
func (w *Window) Find(l *Limits, id journal.CommandID, now int64) (r Command, ok, live bool) {
	n := nameOf(id)
	if w.many != nil {
		r, ok = w.many.find(&n)
	} else {
		var last entry[string]
		for rest := w.few; len(rest) > 0; {
			var p entry[string]
			if p, rest = next(rest); p.is(&n) {
				last, ok = p, true // those before it are too old
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

// keeps reports whether a window of so many commands and bytes of replies keeps
// its first command, which is of that time, when r comes. If not, final says
// that no window keeps any command before it either: with fewer commands in it
// one that a client named may outlive a later one that the server did.
func (l *Limits) keeps(commands, replies int, recordedAt int64, server bool, r *Command) (keeps, final bool) {
	room := commands < l.Commands && replies+len(r.Reply) <= l.ReplyBytes
	return room && r.RecordedAt-recordedAt <= l.age(server), !room || !server
}

// Full reports whether a window of so many commands and bytes of replies may
// have forgotten one for want of room: a reply is less than half of them.
func (l *Limits) Full(commands, replies int) bool {
	return commands >= l.Commands || replies > l.ReplyBytes/2
}

// Add remembers r and forgets what the window no longer holds. It reports
// whether all that is older than the window is forgotten for good, as nothing
// is while it only grows.
func (w *Window) Add(l *Limits, r Command) (final bool) {
	n := nameOf(r.ID)
	return w.put(l, &n, &r)
}

// put is Add for a command whose id is n.
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

// Size is how many commands are remembered, and the bytes of their replies.
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

// Growth returns by how many bytes of memory a window has grown since the last
// call, or shrunk. A window that Small returns has none of its own.
func (w *Window) Growth() (bytes int64) {
	if w.many == nil {
		return 0
	}
	now := int64(cap(w.many.data) + 4*cap(w.many.slots))
	bytes, w.many.weighed = now-w.many.weighed, now
	return bytes
}

// Weight is all that Growth has returned.
func (w *Window) Weight() int64 {
	if w.many == nil {
		return 0
	}
	return w.many.weighed
}

// Count is how many commands are remembered.
func (w *Window) Count() (n int) {
	if w.many != nil {
		return w.many.count
	}
	for rest := w.few; len(rest) > 0; n++ {
		_, rest = next(rest)
	}
	return n
}

// Oldest is the sequence after the first command that is remembered; false
// when none is.
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

// each calls fn with the ids that are remembered, the oldest first. The bytes
// are valid during the call.
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

// AddAll adds the commands of a batch; after each, follow returns the filter
// that takes its id as well, or nil.
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
		n, r := p.called(), lent(p)
		final := w.put(l, &n, &r)
		if f := follow(final); f != nil {
			f.set(spread(n.appendText(text[:0])))
		}
	}
}

// AtMost reports that no more than n commands are remembered.
func (w *Window) AtMost(n int) bool {
	return w.many == nil && fewCommands <= n || w.Count() <= n
}

// Small returns the whole of a window that has few commands, but for Forgot; ok
// is false for a larger one. Restore makes the window again.
func (w *Window) Small() (packed string, ok bool) { return w.few, w.many == nil }

// Restore is the window that Small and Forgot have told of.
func Restore(packed string, forgot int64) Window { return Window{few: packed, forgot: forgot} }

// Forgot is no earlier than the time of any command that the entity has carried
// out and that is not in the window; 0 when it has them all.
func (w *Window) Forgot() int64 { return w.forgot }
