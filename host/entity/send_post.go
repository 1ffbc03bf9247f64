package entity

import (
	"github.com/hostd/hostd/journal"
)

// postbox is the entry of steps that a shard's lane is filling, and the
// refusals whose turn is looked for.
type postbox struct {
	data      []byte
	reqs      []*Request
	mail      mail
	inquiries map[*inquiry]struct{}
}

// post adds a step to the shard's open entry of steps.
func (c *core) post(s *shard, r *Request, steps ...journal.Post) {
	if s.box.data == nil {
		s.box.data = make([]byte, journal.EntryHeaderBytes, 512)
	}
	for i := range steps {
		s.box.data = journal.AppendPost(s.box.data, &steps[i])
	}
	s.box.reqs = append(s.box.reqs, r)
	c.touch(s)
	if len(s.box.data) >= c.opts.BatchBytes {
		c.propose(s) // entries are numbered in the order in which they are proposed
		c.proposePost(s)
	}
}

// proposePost closes the open entry of steps and hands it to the log.
func (c *core) proposePost(s *shard) {
	if len(s.box.reqs) == 0 {
		return
	}
	data := s.box.data
	journal.AppendEntryHeader(data[:0], journal.EntryPost, s.term, s.next)
	p := proposal{number: s.next, bytes: len(data), post: s.box.reqs, mail: s.box.mail}
	s.box.data, s.box.reqs, s.box.mail = nil, nil, mail{}
	s.next++
	c.send(s, p, data)
}

// posted takes the outcome of an entry of steps, and what any entry added to
// the shard's sends: that is applied now, or lost. index is the entry's.
func (c *core) posted(s *shard, p *proposal, index uint64, err error) {
	s.mail.sub(p.mail)
	for _, r := range p.post {
		if err == nil {
			if r.Kind == Deliver {
				c.refusalApplied(s, r)
			}
			c.acknowledged(s, r, index)
			c.settle(s, r, r.Result)
		} else {
			c.settle(s, r, Result{Err: err})
		}
	}
}

// acknowledged makes room in the outboxes of entities whose sends arrived.
func (c *core) acknowledged(s *shard, r *Request, index uint64) {
	left := [...][]Arrived{r.Delivery.Arrived, r.Delivery.GaveUp}
	for i := range len(left[0]) + len(left[1]) {
		list, n := left[0], i
		if n >= len(list) {
			list, n = left[1], n-len(list)
		}
		source := list[n].Source
		e := s.entities.get(source, c.key(source))
		switch {
		case e == nil:
		case e.phase == resident && e.outbox() > 0 && index > e.rest.mail.asOf:
			e.rest.mail.outbox--
		case e.phase == loading:
			m := e.mail()
			m.emptied = append(m.emptied, index)
		}
	}
}

// outboxLoaded takes how many sends an entity had on their way as of an index.
func (e *entity) outboxLoaded(n int, asOf uint64) {
	if m := e.rest.mail; m != nil {
		for _, index := range m.emptied {
			if index > asOf {
				n--
			}
		}
		m.emptied = nil
	}
	if n > 0 {
		m := e.mail()
		m.outbox, m.asOf = n, asOf
	}
}

// noSuchType is why a send is given up.
var noSuchType = &RejectedError{Code: CodeNotFound, Message: "there is no such entity type"}

// acknowledge ends sends that have arrived, or never will.
func (c *core) acknowledge(s *shard, r *Request) {
	if len(r.Delivery.GaveUp) > 0 && c.lettersFull(s) {
		c.settle(s, r, Result{Err: ErrLettersFull})
		return
	}
	steps := make([]journal.Post, 0, len(r.Delivery.Arrived)+len(r.Delivery.GaveUp))
	for i := range r.Delivery.Arrived {
		steps = append(steps, journal.Post{Kind: journal.PostAcknowledged, ID: r.Delivery.Arrived[i].ID})
	}
	for i := range r.Delivery.GaveUp {
		c.stats.Refused++
		s.mail.letters++
		s.box.mail.letters++
		c.opts.Logger.Warn("a send goes to a type that does not exist", "entity_type", r.Delivery.GaveUp[i].Source.Type, "shard_id", s.id)
		steps = append(steps, journal.Post{
			Kind: journal.PostGivenUp, ID: r.Delivery.GaveUp[i].ID, At: c.logNow(s), Code: []byte(noSuchType.Code), Message: []byte(noSuchType.Message), Answer: rejectionJSON(noSuchType),
		})
	}
	c.post(s, r, steps...)
}

// sendAgain makes a dead letter that was given up a new send, in a person's
// name.
func (c *core) sendAgain(s *shard, r *Request) {
	id := r.Delivery.Letter
	c.opts.Logger.Info("a dead letter is sent again", "shard_id", s.id, "index", id.Index, "ordinal", id.Ordinal, "item", id.Item)
	c.post(s, r, journal.Post{Kind: journal.PostSentAgain, ID: id})
}

// discard ends a dead letter, in a person's name.
func (c *core) discard(s *shard, r *Request) {
	id := r.Delivery.Letter
	c.opts.Logger.Info("a dead letter is discarded", "entity_type", r.Entity.Type, "shard_id", s.id, "index", id.Index, "ordinal", id.Ordinal, "item", id.Item)
	c.post(s, r, journal.Post{Kind: journal.PostDiscarded, ID: id})
}

// askRefuse has a refusal's turn looked for: its entity is not asked, and need
// not be in memory.
func (c *core) askRefuse(s *shard, r *Request) {
	q := &inquiry{shard: s.id, id: r.Entity, source: r.Delivery.Source, req: r}
	if s.box.inquiries == nil {
		s.box.inquiries = make(map[*inquiry]struct{})
	}
	s.box.inquiries[q] = struct{}{}
	c.loader.lookUp(q)
}

// refuse takes a send's number without its entity.
func (c *core) refuse(q *inquiry) {
	r := q.req
	s := c.shards[q.shard]
	if s == nil {
		return
	}
	if _, asked := s.box.inquiries[q]; !asked {
		return // answered when the shard was lost
	}
	delete(s.box.inquiries, q)
	d := r.Delivery
	switch {
	case q.err != nil:
		c.settle(s, r, Result{Err: q.err})
		return
	case d.Number <= q.number:
		c.settle(s, r, Result{Duplicate: true})
		return
	case d.After > q.number:
		c.settle(s, r, Result{Err: &GapError{Wanted: q.number + 1}})
		return
	case d.OnReply == "" && c.lettersFull(s):
		c.settle(s, r, Result{Err: ErrLettersFull})
		return
	}
	m := mail{sends: 1, bytes: 256 + len(r.Payload)}
	step := journal.Post{
		Kind: journal.PostRefused, Source: d.source(),
		Type: []byte(r.Entity.Type), Entity: []byte(r.Entity.ID), At: c.logNow(s), Command: []byte(r.Name), OnReject: []byte(d.OnReject),
		Code: []byte(d.Refuse.Code), Message: []byte(d.Refuse.Message),
	}
	if d.OnReply == "" {
		m = mail{letters: 1}
		step.Payload = r.Payload
	} else {
		step.Answer = rejectionJSON(d.Refuse)
	}
	c.opts.Logger.Warn("a send cannot be carried out", "entity_type", r.Entity.Type, "shard_id", s.id, "source_type", d.Source.Type,
		"command", r.Name, "code", d.Refuse.Code, "answered", d.OnReply != "")
	c.stats.Refused++
	c.propose(s) // the records before it, in order
	s.mail.add(m)
	s.box.mail.add(m)
	c.post(s, r, step)
	c.proposePost(s)
}

// refusalApplied has the numbers of the entity asked for again: the refusal
// took one past it.
func (c *core) refusalApplied(s *shard, r *Request) {
	e := s.entities.get(r.Entity, c.key(r.Entity))
	if e == nil || e.rest == nil || e.rest.mail == nil {
		return
	}
	delete(e.rest.mail.inbox, r.Delivery.Source)
	if q := e.inquiry(); q != nil && q.source == r.Delivery.Source {
		q.stale = true
	}
}

// emptyBox answers what the postbox holds when the shard is lost.
func (c *core) emptyBox(s *shard, box postbox, lost error) {
	for _, r := range box.reqs {
		c.settle(s, r, Result{Err: lost})
	}
	for q := range box.inquiries {
		c.settle(s, q.req, Result{Err: lost})
	}
}
