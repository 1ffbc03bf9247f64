package client

import (
	"slices"
	"time"

	"connectrpc.com/connect"
)

// shardRoute is the way of one shard's commands, or of all while the shards are
// not known. Its commands are out to one node at a time:
//
//	          a node is chosen               nothing is out any more
//	waiting ---------------------> flowing                +--------> waiting
//	                                  \                   |
//	                                   +--> draining -----+
//	           one came back, or another node leads
//
// While it drains or waits, commands are held. What came back goes out again
// in front of them, in the order of Send, once all that was out has come back:
// so no command is overtaken by a later one that took another way. The
// stream's mutex guards it.
type shardRoute struct {
	shard  uint32      // 0 while the shards are not known
	stream *nodeStream // where commands go; nil unless flowing
	out    int
	held   pendingList
	back   []*pending
	pause  time.Duration
	after  time.Time // no attempt before
}

// overtakes notes that p, which is still in its stream's list, has its outcome:
// no command of its entity that was sent before it may run after it.
func (l *shardRoute) overtakes(p *pending) {
	for q := p.prev; q != nil; q = q.prev {
		q.overtaken = q.overtaken || q.route == l && q.sameEntity(p)
	}
	for _, q := range l.back {
		q.overtaken = q.overtaken || q.number < p.number && q.sameEntity(p)
	}
}

// waiting reports that the route has commands and no node.
func (l *shardRoute) waiting() bool { return l.stream == nil && l.out == 0 && l.held.first != nil }

// give hands what is held to a stream.
func (l *shardRoute) give(w *nodeStream) {
	l.stream = w
	for p := l.held.first; p != nil; p = l.held.first {
		l.held.remove(p)
		w.push(p)
		l.out++
	}
}

// leave takes the route away from its node.
func (l *shardRoute) leave() {
	l.stream = nil
	if l.out == 0 {
		l.drained()
	}
}

// cameBack takes a command whose attempt failed, and which is tried again.
func (l *shardRoute) cameBack(p *pending, err error, now time.Time, o *Options) {
	if l.stream != nil {
		l.pause = min(max(2*l.pause, o.MinBackoff), o.MaxBackoff)
		l.after = now.Add(l.pause/2 + jitter(l.pause/2))
	}
	if p.failed = err; p.since.IsZero() {
		p.since = now
	}
	l.back = append(l.back, p)
	l.out--
	l.leave()
}

// ended notes that a command has its outcome.
func (l *shardRoute) ended(p *pending, settled bool) {
	l.out--
	if settled {
		l.pause = 0
	}
	if l.stream == nil && l.out == 0 {
		l.drained()
	}
}

// drained puts what came back in front of what is held.
func (l *shardRoute) drained() {
	slices.SortFunc(l.back, func(a, b *pending) int {
		if a.number < b.number {
			return 1
		}
		return -1
	})
	for _, p := range l.back {
		p.prev, p.next = nil, l.held.first
		if l.held.first != nil {
			l.held.first.prev = p
		} else {
			l.held.last = p
		}
		l.held.first = p
	}
	clear(l.back)
	l.back = l.back[:0]
}

// over reports that a command which came back is not tried again: a later one
// of its entity may have run, or it has been tried for long enough.
func (l *shardRoute) over(p *pending, now time.Time, patience time.Duration) bool {
	return p.failed != nil && (p.overtaken || now.Sub(p.since) >= patience || !p.until.IsZero() && now.After(p.until))
}

// failure is what the caller is told of a command that is not tried again.
func (p *pending) failure() error {
	switch {
	case p.carried:
		return &Error{Code: connect.CodeUnknown, Message: "the answer was lost on the way: " + p.failed.Error()}
	case CodeOf(p.failed) == connect.CodeUnavailable:
		return p.failed
	}
	return &Error{Code: connect.CodeUnavailable, Message: "no node could be reached: " + p.failed.Error()}
}
