package modules

import (
	"errors"
	"strings"
	"time"

	"github.com/hostd/hostd/sharding"
)

const (
	// maxFollowers bounds those of a node.
	maxFollowers = 64
	// batchLines and batchBytes bound what a follower gets at once.
	batchLines = 256
	batchBytes = 64 << 10
)

// ErrManyFollowers: a node has as many followers as it may. Retry when one has
// left.
var ErrManyFollowers = errors.New("the node has as many followers of lines as it may")

// LineFollower reads the lines of a type, or of one entity. It is for one
// goroutine.
type LineFollower struct {
	lines *GuestLines
	of    sharding.EntityID
	wake  chan struct{}
	at    uint64 // the next line that is looked at
	seen  uint64 // the number of the last one of the type
}

// Follow begins with the oldest line that is kept; without an id it is about
// all entities of the type. It fails with ErrManyFollowers. Close ends it.
func (l *GuestLines) Follow(of sharding.EntityID) (*LineFollower, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.followers) >= maxFollowers {
		return nil, ErrManyFollowers
	}
	f := &LineFollower{lines: l, of: of, wake: make(chan struct{}, 1), at: l.first}
	if s := l.types[of.Type]; s != nil {
		f.seen = s.count
		for at := l.first; at < l.next; at++ {
			if e := &l.ring[at%maxLines]; e.of == s {
				f.seen = e.number - 1
				break
			}
		}
	}
	if l.followers == nil {
		l.followers = map[*LineFollower]struct{}{}
	}
	l.followers[f] = struct{}{}
	return f, nil
}

// Close lets another one follow.
func (f *LineFollower) Close() {
	f.lines.mu.Lock()
	defer f.lines.mu.Unlock()
	delete(f.lines.followers, f)
}

// Wake gets a value when there may be more to read.
func (f *LineFollower) Wake() <-chan struct{} { return f.wake }

// Read returns the next lines, at most 64 KiB of them, and how many of the type
// are lost since the reading before: they were overwritten, or never kept.
// Where it returns nothing there is nothing more yet.
func (f *LineFollower) Read() (lines []GuestLine, lost uint64) {
	l := f.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	f.at = max(f.at, l.first)
	bytes := 0
	for ; f.at < l.next && len(lines) < batchLines && bytes < batchBytes; f.at++ {
		e := &l.ring[f.at%maxLines]
		if e.of.name != f.of.Type {
			continue
		}
		lost += e.number - f.seen - 1
		f.seen = e.number
		id, text := l.text[e.start:e.start+e.id], l.text[e.start+e.id:e.start+e.id+e.text]
		if f.of.ID != "" && string(id) != f.of.ID {
			continue
		}
		bytes += e.id + e.text
		lines = append(lines, GuestLine{At: time.Unix(0, e.at), Entity: sharding.EntityID{Type: f.of.Type, ID: string(id)}, Module: e.module,
			Level: e.level, Text: strings.ToValidUTF8(string(text), "?")})
	}
	if s := l.types[f.of.Type]; s != nil && f.at == l.next {
		lost += s.count - f.seen
		f.seen = s.count
	}
	return lines, lost
}
