package outbox

import (
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/verdict"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// The destination of a message stores the highest number received from each
// source, forever and independently of whether either entity exists. A record
// or a rejection for a message takes effect only if the message has the next
// number, so each message takes effect exactly once and in order.

// checkSource checks that a record caused by a message or a dead letter is next
// in order, and stages the consequences. It returns the message, or the zero
// value if there is none.
func (s *Stage) checkSource(v *journal.RecordView, at journal.Position) (from journal.MessageSource, err error) {
	data, refusal := v.Section(journal.SectionSource), v.Section(journal.SectionRefusal)
	kind := byte(0)
	if len(data) > 0 {
		kind = data[0]
	} else if data != nil {
		return from, fmt.Errorf("%w: a message source without a kind", journal.ErrDamaged)
	}
	if refusal != nil && kind != journal.SourceEntity {
		return from, fmt.Errorf("%w: a rejection in a record that no message caused", verdict.ErrInvalid)
	}
	switch kind {
	case 0, journal.SourceTimer:
		return from, nil
	case journal.SourceEntity:
		if from, err = journal.DecodeMessageSource(data); err != nil {
			return from, err
		}
		if err := s.receive(v.Type, v.ID, &from); err != nil || refusal == nil {
			return from, err
		}
		r, err := journal.DecodeRefusal(refusal)
		if err != nil {
			return from, err
		}
		return from, s.addDeadLetter(&journal.DeadLetter{
			ID: journal.ItemID{Index: at.Index, Ordinal: at.Ordinal}, Source: entityOf(&from), Destination: v.Entity(), Number: from.Number,
			At: v.RecordedAt, Command: string(r.Command), Code: string(r.Code), Message: string(r.Message), Payload: r.Payload, Token: string(r.Token),
		})
	case journal.SourceDeadLetter:
		id, err := journal.DecodeDeadLetterSource(data)
		if err != nil {
			return from, err
		}
		l, err := s.removeDeadLetter(id)
		if err == nil && (l == nil || l.Destination != v.Entity()) {
			err = fmt.Errorf("%w: the dead letter does not exist", verdict.ErrInvalid)
		}
		return from, err
	}
	return from, fmt.Errorf("%w: message source of kind %d", journal.ErrUnsupported, kind)
}

func entityOf(s *journal.MessageSource) sharding.EntityID {
	return sharding.EntityID{Type: string(s.Type), ID: string(s.ID)}
}

// receive advances the number received from a source.
func (s *Stage) receive(typ, id []byte, from *journal.MessageSource) error {
	if err := verdict.CheckName(from.Type, from.ID, "the source of a message"); err != nil {
		return err
	}
	key := store.AppendPair(s.Key(store.ClassInbox), typ, id, from.Type, from.ID)
	value, has, err := s.find(key)
	if err != nil {
		return err
	}
	highest := uint64(0)
	if has {
		if highest, err = store.DecodeCount(value); err != nil {
			return err
		}
	}
	if !from.InTurn(highest) {
		return fmt.Errorf("%w: message %d does not follow message %d", verdict.ErrInvalid, from.Number, highest)
	}
	s.Set(key, store.AppendCount(make([]byte, 0, 8), from.Number), value)
	return nil
}

// reject consumes a message's number without involving its entity. The
// rejection is sent back to the source, or the message becomes a dead letter.
func (s *Stage) reject(p *journal.OutboxOp, id journal.ItemID) error {
	if err := verdict.CheckName(p.Type, p.Entity, "the destination of a message"); err != nil {
		return err
	}
	if err := s.receive(p.Type, p.Entity, &p.Source); err != nil {
		return err
	}
	s.clock = max(s.clock, p.At)
	to := sharding.EntityID{Type: string(p.Type), ID: string(p.Entity)}
	if len(p.OnReject) > 0 {
		return s.addMessage(to, &journal.MessageOp{Type: p.Source.Type, ID: p.Source.ID, Command: p.OnReject, Payload: p.Answer, Token: p.Token}, p.At, cause{hops: p.Source.Hops, answer: p.Source.Answers}, id)
	}
	return s.addDeadLetter(&journal.DeadLetter{
		ID: id, Source: entityOf(&p.Source), Destination: to, Number: p.Source.Number, At: p.At,
		Command: string(p.Command), Code: string(p.Code), Message: string(p.Message), Payload: p.Payload, Token: string(p.Token),
	})
}

// giveUp ends a message to a type that does not exist.
func (s *Stage) giveUp(p *journal.OutboxOp, id journal.ItemID) error {
	op, err := s.acknowledge(p.ID)
	if op == nil || err != nil {
		return err
	}
	s.clock = max(s.clock, p.At)
	if _, err := s.changeChannel(op.Source, op.Destination, func(c *journal.ChannelCounters) { c.GiveUp(op.Number) }); err != nil {
		return err
	}
	if op.OnReject != "" {
		return s.addMessage(op.Source, &journal.MessageOp{
			Type: []byte(op.Source.Type), ID: []byte(op.Source.ID), Command: []byte(op.OnReject), Payload: p.Answer, Token: []byte(op.Token),
		}, p.At, cause{hops: op.Hops, trace: op.Trace}, id)
	}
	return s.addDeadLetter(&journal.DeadLetter{
		ID: id, Source: op.Source, Destination: op.Destination, At: p.At,
		Command: op.Command, Code: string(p.Code), Message: string(p.Message), Payload: op.Payload, Token: op.Token,
	})
}

// resend turns a dead letter that was given up into a new message.
func (s *Stage) resend(p *journal.OutboxOp, e *journal.Committed, n uint32) error {
	l, err := s.removeDeadLetter(p.ID)
	if err != nil || l == nil {
		return err
	}
	if l.Number != 0 {
		return fmt.Errorf("%w: the dead letter belongs to a different shard", verdict.ErrInvalid)
	}
	return s.addMessage(l.Source, &journal.MessageOp{
		Type: []byte(l.Destination.Type), ID: []byte(l.Destination.ID), Command: []byte(l.Command), Payload: l.Payload, Token: []byte(l.Token),
	}, l.At, cause{}, journal.ItemID{Index: e.Index, Ordinal: n})
}

func (s *Stage) addDeadLetter(l *journal.DeadLetter) error {
	body := store.AppendDeadLetter(nil, l)
	if len(body) > verdict.MaxRecordBytes {
		return fmt.Errorf("%w: a dead letter has %d bytes", verdict.ErrInvalid, len(body))
	}
	s.Set(store.AppendItemID(s.Key(store.ClassDeadLetter), l.ID), body, nil)
	t := s.changeTotals()
	t.DeadLetters++
	t.DeadLetterBytes += uint64(len(body))
	return nil
}

// removeDeadLetter removes a dead letter and returns it, nil if it does not
// exist.
func (s *Stage) removeDeadLetter(id journal.ItemID) (*journal.DeadLetter, error) {
	key := store.AppendItemID(s.Key(store.ClassDeadLetter), id)
	body, has, err := s.find(key)
	if err != nil || !has {
		return nil, err
	}
	l, err := store.DecodeDeadLetter(body, id)
	if err != nil {
		return nil, err
	}
	s.Set(key, nil, body)
	t := s.changeTotals()
	t.DeadLetters--
	t.DeadLetterBytes -= uint64(len(body))
	return &l, nil
}
