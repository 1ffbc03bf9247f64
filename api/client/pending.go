package client

import "time"

// pending is a command that is not answered. Its correlation number holds its
// place among the slots and how often that place has been used, so an answer
// that comes late is known for one.
type pending struct {
	index      uint32
	generation uint32
	number     uint64 // counts up in the order of Send
	cmd        Command
	route      *shardRoute
	stream     *nodeStream // that has it; nil while it is held
	done       func(Reply, error)
	carried    bool      // by an earlier attempt: it may have been carried out
	sent       bool      // over the connection that has it
	first      time.Time // when it was first sent, of attempts that may have carried it out
	overtaken  bool      // a later command of its entity has its outcome
	failed     error     // why the last attempt failed
	since      time.Time // when an attempt first failed
	until      time.Time // the caller's deadline; zero when it has none
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
