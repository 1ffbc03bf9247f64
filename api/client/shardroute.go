package client

import (
	"slices"
	"time"

	"connectrpc.com/connect"
)

// shardRoute is the route of one shard's commands, or of all commands while the
// shards are unknown. Its outstanding commands are all at one node at a time:
//
//	          a node is chosen               nothing is outstanding
//	waiting ---------------------> flowing                +--------> waiting
//	                                  \                   |
//	                                   +--> draining -----+
//	           one failed, or another node leads
//
// While the route drains or waits, new commands are held. Once all outstanding
// commands have returned, failed commands are sent again, in the order of Send,
// before the held commands. Therefore no command is overtaken by a later one
// that took another route. The stream's mutex guards a shardRoute.
type shardRoute struct {
	shard  uint32      // 0 while the shards are unknown
	stream *nodeStream // the stream that gets the commands; nil unless flowing
	out    int
	held   pendingList
	back   []*pending
	pause  time.Duration
	after  time.Time // no attempt is made before this time
}

// overtakes records that p, which is still in its stream's list, has its
// outcome. No earlier command to the same entity may run from then on.
func (l *shardRoute) overtakes(p *pending) {
	for q := p.prev; q != nil; q = q.prev {
		q.overtaken = q.overtaken || q.route == l && q.sameEntity(p)
	}
	for _, q := range l.back {
		q.overtaken = q.overtaken || q.number < p.number && q.sameEntity(p)
	}
}

// waiting reports whether the route has commands but no node.
func (l *shardRoute) waiting() bool { return l.stream == nil && l.out == 0 && l.held.first != nil }

// give hands the held commands to a stream.
func (l *shardRoute) give(w *nodeStream) {
	l.stream = w
	for p := l.held.first; p != nil; p = l.held.first {
		l.held.remove(p)
		w.push(p)
		l.out++
	}
}

// leave removes the route to its node.
func (l *shardRoute) leave() {
	l.stream = nil
	if l.out == 0 {
		l.requeueReturned()
	}
}

// cameBack accepts a command whose attempt failed and that may be tried again.
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

// recordOutcome records that a command has its outcome.
func (l *shardRoute) recordOutcome(p *pending, settled bool) {
	l.out--
	if settled {
		l.pause = 0
	}
	if l.stream == nil && l.out == 0 {
		l.requeueReturned()
	}
}

// requeueReturned puts the returned commands in front of the held commands.
func (l *shardRoute) requeueReturned() {
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

// over reports whether a returned command must not be tried again, because a
// later command to the same entity may have run, or because the command has
// been tried for long enough.
func (l *shardRoute) over(p *pending, now time.Time, patience time.Duration) bool {
	return p.failed != nil && (p.overtaken || now.Sub(p.since) >= patience || !p.until.IsZero() && now.After(p.until))
}

// failure is the error that the caller gets for a command that is not tried
// again.
func (p *pending) failure() error {
	switch {
	case p.carried:
		return &Error{Code: connect.CodeUnknown, Message: "the response was lost: " + p.failed.Error()}
	case CodeOf(p.failed) == connect.CodeUnavailable:
		return p.failed
	}
	return &Error{Code: connect.CodeUnavailable, Message: "no node is reachable: " + p.failed.Error()}
}
