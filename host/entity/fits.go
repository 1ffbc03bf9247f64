package entity

import (
	"errors"
	"slices"

	"github.com/hostd/hostd/abi"
)

// What a command stores is one record, and a record is in one entry of the
// log. Events, reply and sends are bounded so that they always fit; a durable
// state may be so large that they do not fit beside it.

const (
	// maxEntryBytes bounds an entry: the journal refuses larger ones.
	maxEntryBytes = 1 << 20
	// recordRoom is more than a record and its entry take beside what the guest
	// has put out.
	recordRoom = 64 << 10
)

var errOutputTooLarge = errors.New("the state, the reply, the sends and the timers together are too large to be stored")

// outputBytes is about what an output takes in its record.
func outputBytes(out *abi.Output) int {
	n := len(out.State) + len(out.Reply)
	for i := range out.Events {
		e := &out.Events[i]
		n += len(e.Type) + len(e.Payload)
		for _, tag := range e.Tags {
			n += len(tag)
		}
	}
	for i := range out.Sends {
		n += sendBytes(&out.Sends[i])
	}
	for i := range out.Timers {
		t := &out.Timers[i]
		n += len(t.Name) + len(t.Command) + len(t.Payload) + len(t.Expression) + len(t.Zone)
	}
	return n
}

// fits has the open batch proposed where the output does not fit behind it. It
// reports whether the log took that batch. Otherwise entities leave, the output
// may be overwritten by that, and the request is decided again.
func (c *core) fits(e *entity, r *Request) bool {
	s := e.shard
	if len(s.open.data)+outputBytes(&c.output)+recordRoom <= maxEntryBytes {
		return true
	}
	n := s.next
	c.propose(s)
	if s.next == n || slices.ContainsFunc(s.proposed, func(p proposal) bool { return p.number == n }) {
		return true
	}
	if e.phase == resident { // ahead of the log by what is not to be stored
		c.evict(e)
		c.revive(e)
	}
	r.Again = true // others have had their turn since
	c.dispatch(s, r)
	return false
}
