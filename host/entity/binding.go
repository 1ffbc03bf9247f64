package entity

import "github.com/hostd/hostd/journal"

// A shard's commands run under bindings of types to modules that only move
// forward, whoever leads it: before the first command under a newer revision
// its leader commits the revision to the shard's log, and the lane of a new
// leader waits until its own node serves that revision.

// bind makes an entity wait until the shard's log has the revision under which
// its next request would run.
func (c *core) bind(e *entity, revision uint64) {
	s := e.shard
	s.wanted = max(s.wanted, revision)
	s.held = append(s.held, e)
	e.held = true
	c.away[e] = struct{}{}
	c.touch(s)
}

// proposeBindings puts the revision that entities wait for into the log, one
// proposal at a time.
func (c *core) proposeBindings(s *shard) {
	if len(s.held) == 0 || s.asked || s.state != leading {
		return
	}
	s.asked = true
	n := s.next
	s.next++
	data := journal.AppendBindingsEntry(nil, s.term, n, s.wanted)
	c.send(s, proposal{number: n, bytes: len(data), revision: s.wanted}, data)
}

// bound takes the outcome of a proposal with a revision. One that was dropped
// is proposed again when deadlines are looked at next.
func (c *core) bound(s *shard, revision uint64, err error) {
	s.asked = false
	if err != nil {
		return
	}
	s.revision = max(s.revision, revision)
	held := s.held
	s.unhold()
	for _, e := range held {
		c.enqueue(e)
	}
}

func (b *binding) unhold() {
	for _, e := range b.held {
		e.held = false
	}
	b.held, b.wanted, b.asked = nil, 0, false
}

// bindingsMoved lets the lane lead what had to wait for this node's bindings.
func (c *core) bindingsMoved() {
	c.learnTypes()
	for _, s := range c.shards {
		c.activate(s)
	}
}
