package outbox

import (
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/verdict"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Transfer stages a part of an import: an unacknowledged message or a dead
// letter.
func (s *Stage) Transfer(at journal.ItemID, kind journal.PartKind, data []byte) error {
	t, err := journal.DecodeTransfer(data)
	if err != nil {
		return err
	}
	if len(t.Body) > verdict.MaxRecordBytes {
		return fmt.Errorf("%w: a message has %d bytes", verdict.ErrInvalid, len(t.Body))
	}
	totals := s.changeTotals()
	if kind == journal.PartDeadLetter {
		l, err := store.DecodeDeadLetter(t.Body, at)
		if err != nil {
			return fmt.Errorf("%w: %w", verdict.ErrInvalid, err) // depends only on the file, so all replicas agree
		}
		if l.Destination != t.Entity && (l.Number != 0 || l.Source != t.Entity) {
			return fmt.Errorf("%w: the dead letter belongs to a different entity", verdict.ErrInvalid)
		}
		totals.DeadLetters++
		totals.DeadLetterBytes += uint64(len(t.Body))
		s.Set(store.AppendItemID(s.Key(store.ClassDeadLetter), at), t.Body, nil)
		return nil
	}
	op, err := store.DecodeMessage(t.Body, at)
	if err != nil {
		return fmt.Errorf("%w: %w", verdict.ErrInvalid, err)
	}
	if op.Source != t.Entity {
		return fmt.Errorf("%w: the message belongs to a different entity", verdict.ErrInvalid)
	}
	totals.Messages++
	totals.MessageBytes += uint64(len(t.Body))
	s.Set(store.AppendItemID(s.Key(store.ClassOutbox), at), t.Body, nil)
	_, err = s.count(store.AppendEntityID(s.Key(store.ClassCount), op.Source), 1)
	return err
}

// Number stages a part of an import: the numbers of a channel.
func (s *Stage) Number(kind journal.PartKind, data []byte) error {
	c, err := journal.DecodePartCount(data)
	if err != nil {
		return err
	}
	class := store.ClassCount
	if kind == journal.PartInbox {
		class = store.ClassInbox
	}
	for _, e := range []sharding.EntityID{c.Entity, c.Other} {
		if err := verdict.CheckName([]byte(e.Type), []byte(e.ID), "a channel"); err != nil {
			return err
		}
	}
	key := store.AppendEntityID(store.AppendEntityID(s.Key(class), c.Entity), c.Other)
	_, has, err := s.find(key)
	if err != nil {
		return err
	}
	if has {
		return fmt.Errorf("%w: the channel exists already", verdict.ErrInvalid)
	}
	s.Set(key, store.AppendChannelCounters(nil, &journal.ChannelCounters{Last: c.Number, After: c.After, GivenUp: c.GivenUp}), nil)
	return nil
}
