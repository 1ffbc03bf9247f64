package eventlog

import (
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
)

// messages exports the shard's messages: first the last number of each channel,
// then the waiting messages in the order of their creation.
func (p *parts) messages() error {
	for _, c := range []struct {
		class store.Class
		kind  journal.PartKind
	}{{store.ClassCount, journal.PartPair}, {store.ClassInbox, journal.PartInbox}} {
		prefix := append([]byte{}, p.prefix(c.class)...)
		err := p.view.Scan(prefix, nil, func(key, body []byte) error { return p.number(c.kind, key[len(prefix):], body) })
		if err != nil {
			return err
		}
	}
	for _, c := range []struct {
		class store.Class
		kind  journal.PartKind
	}{{store.ClassOutbox, journal.PartMessage}, {store.ClassDeadLetter, journal.PartDeadLetter}} {
		prefix := append([]byte{}, p.prefix(c.class)...)
		err := p.view.Scan(prefix, nil, func(key, body []byte) error { return p.transfer(c.kind, key[len(prefix):], body) })
		if err != nil {
			return err
		}
	}
	return nil
}

// number exports the last number of a channel. The other counters can be
// derived from the other parts.
func (p *parts) number(kind journal.PartKind, rest, body []byte) error {
	if len(rest) == 0 {
		return p.ctx.Err() // the shard's totals
	}
	c := journal.Count{}
	e, other, err := store.SplitEntity(string(rest))
	if err != nil {
		return err
	}
	if other == "" {
		return p.ctx.Err() // number of an entity's waiting messages
	}
	c.Entity = e
	if c.Other, _, err = store.SplitEntity(other); err != nil {
		return err
	}
	if kind == journal.PartPair {
		pair, perr := store.DecodeChannelCounters(body)
		c.Number, c.After, c.GivenUp, err = pair.Last, pair.After, pair.GivenUp, perr
	} else {
		c.Number, err = store.DecodeCount(body)
	}
	if err != nil {
		return err
	}
	p.buf = journal.AppendPartCount(p.buf[:0], &c)
	return p.fn(kind, p.buf)
}

func (p *parts) transfer(kind journal.PartKind, rest, body []byte) error {
	id, err := store.DecodeItemID(rest)
	if err != nil {
		return err
	}
	t := journal.Transfer{Body: body}
	if kind == journal.PartDeadLetter {
		l, lerr := store.DecodeDeadLetter(body, id)
		if t.Entity, err = l.Destination, lerr; l.Number == 0 {
			t.Entity = l.Source
		}
	} else {
		s, serr := store.DecodeMessage(body, id)
		if t.Entity, err = s.Source, serr; s.Trace != nil {
			s.Trace = nil // the trace belongs to this cluster, and the importing cluster may have a lower version
			t.Body = store.AppendMessage(nil, &s)
		}
	}
	if err != nil {
		return err
	}
	p.buf = journal.AppendTransfer(p.buf[:0], &t)
	return p.fn(kind, p.buf)
}
