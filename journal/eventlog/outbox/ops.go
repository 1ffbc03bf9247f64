package outbox

import (
	"bytes"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/verdict"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Record checks the messages in a record and stages the changes.
func (s *Stage) Record(v *journal.RecordView, at journal.Position) error {
	from, err := s.checkSource(v, at)
	if err != nil {
		return err
	}
	item, in, tokens := uint16(0), v.TraceContext(), journal.Tokens(v.Section(journal.SectionTokens))
	for ops := v.Section(journal.SectionMessages); len(ops) > 0; item++ {
		op, rest, err := journal.NextMessageOp(ops)
		if err != nil {
			return err
		}
		ops = rest
		if op.Token, err = tokens.Next(item); err != nil {
			return err
		}
		if item == journal.MaxMessages || verdict.CheckName(op.Type, op.ID, "a destination") != nil {
			return fmt.Errorf("%w: a message that exceeds the storage limits", verdict.ErrInvalid)
		}
		id := journal.ItemID{Index: at.Index, Ordinal: at.Ordinal, Item: item}
		answer := from.Answers && len(rest) == 0 && bytes.Equal(op.Type, from.Type) && bytes.Equal(op.ID, from.ID)
		if err := s.addMessage(v.Entity(), &op, v.RecordedAt, cause{from.Hops, in, answer}, id); err != nil {
			return err
		}
	}
	return tokens.End()
}

// cause describes what led to a message.
type cause struct {
	hops   uint8
	trace  *journal.TraceContext // nil if there is none
	answer bool                  // the new message is the reply to a message
}

// addMessage assigns a number to a message and adds it to the outbox.
func (s *Stage) addMessage(source sharding.EntityID, op *journal.MessageOp, now int64, by cause, id journal.ItemID) error {
	to := sharding.EntityID{Type: string(op.Type), ID: string(op.ID)}
	pair, err := s.changeChannel(source, to, func(c *journal.ChannelCounters) { c.Last++ })
	if err != nil {
		return err
	}
	if _, err = s.count(store.AppendEntityID(s.Key(store.ClassCount), source), 1); err != nil {
		return err
	}
	body := store.AppendMessage(nil, &journal.Message{
		Source: source, Destination: to, Number: pair.Last, At: now, Hops: by.hops, Trace: by.trace, Answer: by.answer,
		Command: string(op.Command), OnReply: string(op.OnReply), OnReject: string(op.OnReject), Payload: op.Payload, Token: string(op.Token),
	})
	if len(body) > verdict.MaxRecordBytes {
		return fmt.Errorf("%w: a message has %d bytes", verdict.ErrInvalid, len(body))
	}
	s.Set(store.AppendItemID(s.Key(store.ClassOutbox), id), body, nil)
	t := s.changeTotals()
	t.Messages++
	t.MessageBytes += uint64(len(body))
	s.messages = true
	return nil
}

// changeChannel changes the counters of a channel.
func (s *Stage) changeChannel(source, to sharding.EntityID, change func(*journal.ChannelCounters)) (c journal.ChannelCounters, err error) {
	key := store.AppendEntityID(store.AppendEntityID(s.Key(store.ClassCount), source), to)
	value, has, err := s.find(key)
	if err == nil && has {
		c, err = store.DecodeChannelCounters(value)
	}
	if err != nil {
		return c, err
	}
	change(&c)
	s.Set(key, store.AppendChannelCounters(make([]byte, 0, 8), &c), value)
	return c, nil
}

// acknowledge removes a message from the outbox and returns it, nil if it no
// longer exists.
func (s *Stage) acknowledge(id journal.ItemID) (*journal.Message, error) {
	key := store.AppendItemID(s.Key(store.ClassOutbox), id)
	body, has, err := s.find(key)
	if err != nil || !has {
		return nil, err
	}
	op, err := store.DecodeMessage(body, id)
	if err != nil {
		return nil, err
	}
	s.Set(key, nil, body)
	t := s.changeTotals()
	t.Messages--
	t.MessageBytes -= uint64(len(body))
	_, err = s.count(store.AppendEntityID(s.Key(store.ClassCount), op.Source), -1)
	return &op, err
}

// Ops checks an entry of outbox operations and stages them.
func (s *Stage) Ops(e *journal.Committed, body []byte) error {
	for n := uint32(0); len(body) > 0; n++ {
		p, rest, err := journal.NextOutboxOp(body)
		if err != nil {
			return err
		}
		body = rest
		switch p.Kind {
		case journal.OutboxAcknowledged:
			_, err = s.acknowledge(p.ID)
		case journal.OutboxDiscarded:
			_, err = s.removeDeadLetter(p.ID)
		case journal.OutboxGivenUp:
			err = s.giveUp(&p, journal.ItemID{Index: e.Index, Ordinal: n})
		case journal.OutboxSentAgain:
			err = s.resend(&p, e, n)
		default:
			err = s.reject(&p, journal.ItemID{Index: e.Index, Ordinal: n})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
