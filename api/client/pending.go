package client

import "time"

// pending is an unanswered command. Its correlation number consists of its slot
// and of how often that slot has been used, so that a late answer is
// recognized.
type pending struct {
	index      uint32
	generation uint32
	number     uint64 // increases in the order of Send
	cmd        Command
	route      *shardRoute
	stream     *nodeStream // node stream that has the command; nil while it is held
	done       func(Reply, error)
	carried    bool      // an earlier attempt was sent, and may have run the command
	sent       bool      // sent over the current connection
	first      time.Time // time of the first attempt that may have run the command
	overtaken  bool      // a later command to the same entity already has its outcome
	failed     error     // why the last attempt failed
	since      time.Time // when an attempt first failed
	until      time.Time // the caller's deadline; zero if it has none
	prev, next *pending
}

func (p *pending) correlation() uint64 { return uint64(p.generation)<<32 | uint64(p.index) }

func (p *pending) sameEntity(q *pending) bool {
	return p.cmd.EntityID == q.cmd.EntityID && p.cmd.EntityType == q.cmd.EntityType
}

// pendingList is a list of commands.
type pendingList struct{ first, last *pending }

func (l *pendingList) push(p *pending) {
	p.prev, p.next = l.last, nil
	if l.last != nil {
		l.last.next = p
	} else {
		l.first = p
	}
	l.last = p
}

func (l *pendingList) remove(p *pending) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		l.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		l.last = p.prev
	}
	p.prev, p.next = nil, nil
}
