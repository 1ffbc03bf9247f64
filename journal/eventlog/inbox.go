package eventlog

import (
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// The destination of a send keeps the highest number that it has from each
// source, for ever, across the lives of both. A record, or a refusal, of a send
// takes effect only if its number is the next: so each has its effect once, and
// in order.

// judgeSource checks that a record made by a send or by a dead letter comes in
// its turn, and stages what that takes.
func (m *Machine) judgeSource(sh *shard, v *journal.RecordView, at journal.Position) error {
	data, refusal := v.Section(journal.SectionSource), v.Section(journal.SectionRefusal)
	kind := byte(0)
	if len(data) > 0 {
		kind = data[0]
	} else if data != nil {
		return fmt.Errorf("%w: a source of no kind", journal.ErrDamaged)
	}
	if refusal != nil && kind != journal.SourceEntity {
		return fmt.Errorf("%w: a refusal of no send", ErrInvalid)
	}
	switch kind {
	case 0, journal.SourceTimer:
		return nil
	case journal.SourceEntity:
		s, err := journal.DecodeSendSource(data)
		if err != nil {
			return err
		}
		if err := m.receive(sh, v.Type, v.ID, &s); err != nil || refusal == nil {
			return err
		}
		r, err := journal.DecodeRefusal(refusal)
		if err != nil {
			return err
		}
		return m.addLetter(sh, &journal.Letter{
			ID: journal.ItemID{Index: at.Index, Ordinal: at.Ordinal}, Source: entityOf(&s), Destination: v.Entity(), Number: s.Number,
			At: v.RecordedAt, Command: string(r.Command), Code: string(r.Code), Message: string(r.Message), Payload: r.Payload,
		})
	case journal.SourceLetter:
		id, err := journal.DecodeLetterSource(data)
		if err != nil {
			return err
		}
		l, err := m.removeLetter(sh, id)
		if err == nil && (l == nil || l.Destination != v.Entity()) {
			err = fmt.Errorf("%w: its dead letter is not there", ErrInvalid)
		}
		return err
	}
	return fmt.Errorf("%w: source %d", journal.ErrUnsupported, kind)
}

func entityOf(s *journal.SendSource) sharding.EntityID {
	return sharding.EntityID{Type: string(s.Type), ID: string(s.ID)}
}

// receive takes the next number of a source.
func (m *Machine) receive(sh *shard, typ, id []byte, s *journal.SendSource) error {
	if !validName(s.Type, sharding.MaxEntityTypeBytes) || !validName(s.ID, sharding.MaxEntityIDBytes) {
		return fmt.Errorf("%w: the source of a send cannot be a key", ErrInvalid)
	}
	key := store.AppendPair(m.postKey(store.ClassInbox), typ, id, s.Type, s.ID)
	value, has, err := m.find(sh, key)
	if err != nil {
		return err
	}
	highest := uint64(0)
	if has {
		if highest, err = store.DecodeCount(value); err != nil {
			return err
		}
	}
	if checkInbox && !s.InTurn(highest) {
		return fmt.Errorf("%w: send %d is not the next after %d", ErrInvalid, s.Number, highest)
	}
	m.stage(key, store.AppendCount(make([]byte, 0, 8), s.Number), has)
	return nil
}

// refuse takes a send's number without its entity. The refusal goes back to the
// source, or the send becomes a dead letter.
func (m *Machine) refuse(sh *shard, p *journal.Post, id journal.ItemID) error {
	if !validName(p.Type, sharding.MaxEntityTypeBytes) || !validName(p.Entity, sharding.MaxEntityIDBytes) {
		return fmt.Errorf("%w: the destination of a send cannot be a key", ErrInvalid)
	}
	if err := m.receive(sh, p.Type, p.Entity, &p.Source); err != nil {
		return err
	}
	m.post.clock = max(m.post.clock, p.At)
	to := sharding.EntityID{Type: string(p.Type), ID: string(p.Entity)}
	if len(p.OnReject) > 0 {
		return m.addSend(sh, to, &journal.SendOp{Type: p.Source.Type, ID: p.Source.ID, Command: p.OnReject, Payload: p.Answer}, p.At, id)
	}
	return m.addLetter(sh, &journal.Letter{
		ID: id, Source: entityOf(&p.Source), Destination: to, Number: p.Source.Number, At: p.At,
		Command: string(p.Command), Code: string(p.Code), Message: string(p.Message), Payload: p.Payload,
	})
}

// giveUp ends a send whose destination's type does not exist.
func (m *Machine) giveUp(sh *shard, p *journal.Post, id journal.ItemID) error {
	s, err := m.acknowledge(sh, p.ID)
	if s == nil || err != nil {
		return err
	}
	m.post.clock = max(m.post.clock, p.At)
	if _, err := m.changePair(sh, s.Source, s.Destination, func(c *journal.PairCount) { c.GiveUp(s.Number) }); err != nil {
		return err
	}
	if s.OnReject != "" {
		return m.addSend(sh, s.Source, &journal.SendOp{
			Type: []byte(s.Source.Type), ID: []byte(s.Source.ID), Command: []byte(s.OnReject), Payload: p.Answer,
		}, p.At, id)
	}
	return m.addLetter(sh, &journal.Letter{
		ID: id, Source: s.Source, Destination: s.Destination, At: p.At,
		Command: s.Command, Code: string(p.Code), Message: string(p.Message), Payload: s.Payload,
	})
}

// sendAgain makes a dead letter that was given up a new send.
func (m *Machine) sendAgain(sh *shard, p *journal.Post, e *journal.Committed, n uint32) error {
	l, err := m.removeLetter(sh, p.ID)
	if err != nil || l == nil {
		return err
	}
	if l.Number != 0 {
		return fmt.Errorf("%w: a dead letter of another shard", ErrInvalid)
	}
	return m.addSend(sh, l.Source, &journal.SendOp{
		Type: []byte(l.Destination.Type), ID: []byte(l.Destination.ID), Command: []byte(l.Command), Payload: l.Payload,
	}, l.At, journal.ItemID{Index: e.Index, Ordinal: n})
}

func (m *Machine) addLetter(sh *shard, l *journal.Letter) error {
	body := store.AppendLetter(nil, l)
	if len(body) > MaxRecordBytes {
		return fmt.Errorf("%w: a dead letter has %d bytes", ErrInvalid, len(body))
	}
	m.stage(store.AppendItemID(m.postKey(store.ClassLetter), l.ID), body, false)
	t := m.changeTotals(sh)
	t.Letters++
	t.LetterBytes += uint64(len(body))
	return nil
}

// removeLetter ends a dead letter and returns it, nil if it is not there.
func (m *Machine) removeLetter(sh *shard, id journal.ItemID) (*journal.Letter, error) {
	key := store.AppendItemID(m.postKey(store.ClassLetter), id)
	body, has, err := m.find(sh, key)
	if err != nil || !has {
		return nil, err
	}
	l, err := store.DecodeLetter(body, id)
	if err != nil {
		return nil, err
	}
	m.stage(key, nil, true)
	t := m.changeTotals(sh)
	t.Letters--
	t.LetterBytes -= uint64(len(body))
	return &l, nil
}
