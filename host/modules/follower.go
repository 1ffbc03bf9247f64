package modules

import (
	"errors"
	"strings"
	"time"

	"github.com/hostd/hostd/sharding"
)

const (
	// maxFollowers bounds the followers of a node.
	maxFollowers = 64
	// batchLines and batchBytes bound the result of one Read.
	batchLines = 256
	batchBytes = 64 << 10
)

// ErrManyFollowers: the node has the maximum number of followers. Retry after
// a follower has closed.
var ErrManyFollowers = errors.New("the node has too many log followers")

// LineFollower reads the lines of a type or of one entity. It belongs to one
// goroutine.
type LineFollower struct {
	lines *GuestLines
	of    sharding.EntityID
	wake  chan struct{}
	at    uint64 // index of the next line to check
	seen  uint64 // number of the last line of the type that was seen
}

// Follow returns a follower that begins with the oldest line that is kept. If
// of has no id, the follower reads the lines of all entities of the type.
// Follow fails with ErrManyFollowers. The caller must Close the follower.
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

// Close makes room for another follower.
func (f *LineFollower) Close() {
	f.lines.mu.Lock()
	defer f.lines.mu.Unlock()
	delete(f.lines.followers, f)
}

// Wake returns a channel that receives a value when there may be more to read.
func (f *LineFollower) Wake() <-chan struct{} { return f.wake }

// Read returns the next lines, at most 64 KiB. lost is how many lines of the
// type were lost since the previous Read, because they were overwritten or
// exceeded the rate limit. It returns nothing if there are no new lines.
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
