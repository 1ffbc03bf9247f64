package modules

import (
	"strings"
	"sync"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// maxLines and maxBytes bound the lines that a node keeps. The oldest lines
	// are overwritten.
	maxLines = 4096
	maxBytes = 1 << 20
	// maxTypes bounds the types whose lines are kept.
	maxTypes = 4096
	// bytesPerSecond limits the lines kept of a type's guests, and burst is the
	// maximum they may save up, in bytes; lineBytes is the overhead charged for
	// each line. The limit keeps one type from pushing out the lines of other
	// types.
	bytesPerSecond = 64 << 10
	burst          = 256 << 10
	lineBytes      = 128
	perByte        = int64(time.Second) / bytesPerSecond
)

// LineLevel is the level of a line.
type LineLevel uint8

// The levels of lines: those of a guest's log, LineInfo for standard output and
// error, and LineFault for the end of a failed call.
const (
	LineDebug LineLevel = iota
	LineInfo
	LineWarn
	LineError
	LineFault
)

// String returns the name of the level.
func (l LineLevel) String() string {
	return [...]string{"debug", "info", "warn", "error", "fault"}[min(l, LineFault)]
}

// GuestLine is a line as a follower gets it. The guest wrote the text: it is
// hostile, and may contain the guest's input.
type GuestLine struct {
	At     time.Time
	Entity sharding.EntityID // has no id if no entity was called
	Module journal.Digest
	Level  LineLevel
	Text   string
}

// GuestLines keeps the newest lines of a node. The zero value is ready for use
// and safe for concurrent use.
type GuestLines struct {
	// Now replaces time.Now in tests.
	Now func() time.Time

	mu        sync.Mutex
	types     map[string]*source
	ring      []entry // allocated with the first line
	text      []byte
	first     uint64 // index of the oldest line
	next      uint64
	free      int // offset in text of the next line
	followers map[*LineFollower]struct{}
}

// source counts the lines of a type, including dropped lines.
type source struct {
	name  string
	count uint64
	paid  int64 // when all kept lines are paid for, unix nanoseconds
}

// entry is a kept line; id and text are in GuestLines.text.
type entry struct {
	of       *source
	number   uint64 // number among the lines of the type
	at       int64
	module   journal.Digest
	level    LineLevel
	start    int
	id, text int // lengths in bytes
}

// Add stores a line of an entity, or only counts it if its type exceeds the
// rate. It keeps none of its arguments.
func (l *GuestLines) Add(e sharding.EntityID, module journal.Digest, version LineLevel, text []byte) {
	now := time.Now()
	if l.Now != nil {
		now = l.Now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.types[e.Type]
	if s == nil {
		if len(l.types) >= maxTypes {
			return
		}
		if l.types == nil {
			l.types = map[string]*source{}
		}
		s = &source{name: strings.Clone(e.Type)}
		l.types[s.name] = s
	}
	s.count++
	if len(e.ID)+len(text) <= maxBytes/4 && s.take(now.UnixNano(), len(e.ID)+len(text)) {
		l.keep(entry{of: s, number: s.count, at: now.UnixNano(), module: module, level: version}, e.ID, text)
	}
	for f := range l.followers {
		if f.of.Type == s.name {
			select {
			case f.wake <- struct{}{}:
			default:
			}
		}
	}
}

// take charges a line of n bytes. It returns false if the rate is exceeded.
func (s *source) take(now int64, n int) bool {
	from := max(s.paid, now)
	if from > now+2*burst*perByte {
		from = now // the clock was set back
	}
	if from += int64(n+lineBytes) * perByte; from > now+burst*perByte {
		return false
	}
	s.paid = from
	return true
}

// keep copies a line into the ring.
func (l *GuestLines) keep(e entry, id string, text []byte) {
	if l.ring == nil {
		l.ring, l.text = make([]entry, maxLines), make([]byte, maxBytes)
	}
	e.id, e.text = len(id), len(text)
	n := e.id + e.text
	if l.free+n > len(l.text) { // a line must be contiguous
		for l.first < l.next && l.oldest().start >= l.free {
			l.first++
		}
		l.free = 0
	}
	for l.first < l.next && (l.next-l.first == maxLines || l.oldest().start >= l.free && l.oldest().start < l.free+n) {
		l.first++
	}
	e.start = l.free
	copy(l.text[e.start:], id)
	copy(l.text[e.start+e.id:], text)
	l.free += n
	l.ring[l.next%maxLines] = e
	l.next++
}

func (l *GuestLines) oldest() *entry { return &l.ring[l.first%maxLines] }
