package entity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// A send is a part of its command's record, so it is made if and only if the
// command has its effect. What is applied waits in the shard's outbox; a pump
// outside of the lane brings it to the lane of its destination as a request,
// and brings back that it arrived. The destination's lane carries it out only
// in its turn; that is judged again where its record is applied, so a lane
// that is wrong about the turn costs a proposal, and nothing else.

// Delivery is what a request has that concerns a send beside a command.
type Delivery struct {
	// Of Deliver and Redeliver: who sent it. Of Deliver: its number among those
	// from Source to the request's Entity, that of the one which it follows, and
	// which commands of Source get the outcome, both empty for none.
	Source            sharding.EntityID
	Number, After     uint64
	OnReply, OnReject string
	// Refuse, of Deliver, takes the number without asking the entity, which
	// cannot carry the send out.
	Refuse *RejectedError
	// Letter, of Redeliver, SendAgain and Discard, is the dead letter.
	Letter journal.ItemID
	// Arrived, of Acknowledge, are the shard's sends that need not be kept.
	Arrived []Arrived
	// GaveUp, of Acknowledge, are sends of the shard to types that do not exist.
	GaveUp []Arrived
}

// source is what a record says of the send that made it.
func (d *Delivery) source() journal.SendSource {
	return journal.SendSource{Type: []byte(d.Source.Type), ID: []byte(d.Source.ID), Number: d.Number, After: d.After}
}

// Arrived is a send that its destination has, and who sent it.
type Arrived struct {
	ID     journal.ItemID
	Source sharding.EntityID
}

// SendCommand names the command of a send: the same at each delivery.
func SendCommand(source sharding.EntityID, number uint64) journal.CommandID {
	h := fnv.New64a()
	h.Write([]byte(source.Type))
	h.Write([]byte{0})
	h.Write([]byte(source.ID))
	return journal.CommandID(fmt.Sprintf("send-%016x-%d", h.Sum64(), number))
}

// mail is what an entry adds to what its shard has of sends.
type mail struct{ sends, bytes, letters int }

func (m *mail) add(o mail) {
	m.sends, m.bytes, m.letters = m.sends+o.sends, m.bytes+o.bytes, m.letters+o.letters
}

func (m *mail) sub(o mail) {
	m.sends, m.bytes, m.letters = m.sends-o.sends, m.bytes-o.bytes, m.letters-o.letters
}

// entityMail is what a lane knows of an entity's sends.
type entityMail struct {
	inbox   map[sharding.EntityID]receipt // resident: numbers that are known
	inquiry *inquiry                      // the first request waits for it
	outbox  int                           // resident: sends on their way
	asOf    uint64                        // acknowledgements up to this index are accounted for
	emptied []uint64                      // loading: indexes of acknowledgements
}

// mail returns the entity's, to be changed.
func (e *entity) mail() *entityMail {
	r := e.more()
	if r.mail == nil {
		r.mail = &entityMail{}
	}
	return r.mail
}

func (e *entity) inquiry() *inquiry {
	if e.rest == nil || e.rest.mail == nil {
		return nil
	}
	return e.rest.mail.inquiry
}

func (e *entity) outbox() int {
	if e.rest == nil || e.rest.mail == nil {
		return 0
	}
	return e.rest.mail.outbox
}

// internal reports that the command comes from within: its id is not
// remembered, for something else keeps it from having its effect again.
func (r *Request) internal() bool { return r.fire != nil || r.Kind == Deliver || r.Kind == Redeliver }

// sendBytes is about what a send takes in the outbox.
func sendBytes(s *abi.Send) int {
	return len(s.EntityType) + len(s.EntityID) + len(s.Command) + len(s.OnReply) + len(s.OnReject) + len(s.Payload) + 128
}

// room reports whether what the output sends fits. A send that only answers
// the one it was made by always does: it takes that one's place, and two that
// wait for each other's room would do so for ever. Commands of clients and
// timers leave half of the room to entities that carry out sends and send more.
func (c *core) room(e *entity, r *Request) error {
	if len(c.output.Sends) == 0 || r.Kind == Deliver && r.Delivery.OnReply != "" && len(c.output.Sends) == 1 {
		return nil
	}
	most := 1
	if r.Kind == Deliver {
		most = 2
	}
	if e.outbox()+len(c.output.Sends) > most*c.opts.EntitySends {
		return fmt.Errorf("%w: the entity has %d sends on their way", ErrOutboxFull, e.outbox())
	}
	size := 0
	for i := range c.output.Sends {
		size += sendBytes(&c.output.Sends[i])
	}
	has := c.opts.Histories.SendTotals(e.shard.id)
	sends, total := int(has.Sends)+e.shard.mail.sends, int(has.SendBytes)+e.shard.mail.bytes
	if sends+len(c.output.Sends) > most*c.opts.ShardSends || total+size > most*c.opts.ShardSendBytes {
		return fmt.Errorf("%w: the shard has %d sends on their way", ErrOutboxFull, sends)
	}
	return nil
}

// lettersFull reports that a shard has no room for another dead letter.
func (c *core) lettersFull(s *shard) bool {
	return int(c.opts.Histories.SendTotals(s.id).Letters)+s.mail.letters >= c.opts.ShardLetters
}

// withdraw takes back an entity that may have evolved by what is not to be,
// and answers the command.
func (c *core) withdraw(e *entity, r *Request, err error) {
	if len(c.output.Events) > 0 || c.output.HasState {
		c.evict(e)
		c.revive(e)
	}
	c.settle(e.shard, r, Result{Err: err})
}

// sendSections gives a record the send or the letter that made it, what its
// guest sends, and that it is a refusal; and notes what that takes.
func (c *core) sendSections(e *entity, r *Request, rec *journal.Record) {
	s, d := e.shard, r.Delivery
	switch r.Kind {
	case Deliver:
		source := d.source()
		addSection(rec, journal.SectionSource, journal.AppendSendSource(nil, &source))
		rec.Reply = nil // nobody asks for it again
		e.received(d.Source, d.Number, s.next)
	case Redeliver:
		addSection(rec, journal.SectionSource, journal.AppendLetterSource(nil, d.Letter))
	}
	var m mail
	if len(c.output.Sends) > 0 {
		var data []byte
		for i := range c.output.Sends {
			o := &c.output.Sends[i]
			data = journal.AppendSendOp(data, &journal.SendOp{
				Type: o.EntityType, ID: o.EntityID, Command: o.Command, OnReply: o.OnReply, OnReject: o.OnReject, Payload: o.Payload,
			})
			m.bytes += sendBytes(o)
		}
		m.sends = len(c.output.Sends)
		e.mail().outbox += m.sends
		addSection(rec, journal.SectionSends, data)
	}
	if c.refusal != nil {
		m.letters = 1
		addSection(rec, journal.SectionRefusal, journal.AppendRefusal(nil, c.refusal))
		c.refusal = nil
	}
	s.open.mail.add(m)
	s.mail.add(m)
}

// addSection puts a section where its kind belongs.
func addSection(rec *journal.Record, kind journal.SectionKind, data []byte) {
	i := len(rec.Sections)
	for i > 0 && rec.Sections[i-1].Kind > kind {
		i--
	}
	rec.Sections = slices.Insert(rec.Sections, i, journal.Section{Kind: kind, Data: data})
}

// answer adds the outcome of a send to what the output sends, where the source
// wants it.
func (c *core) answer(d *Delivery) {
	if d.OnReply == "" {
		return
	}
	c.output.Sends = append(c.output.Sends, abi.Send{
		EntityType: []byte(d.Source.Type), EntityID: []byte(d.Source.ID), Command: []byte(d.OnReply), Payload: bytes.Clone(c.output.Reply),
	})
}

// rejectionJSON is the payload of the command that gets a rejection.
func rejectionJSON(r *RejectedError) []byte {
	b, err := json.Marshal(struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{r.Code, r.Message})
	if err != nil {
		panic("entity: " + err.Error()) // two strings
	}
	return b
}
