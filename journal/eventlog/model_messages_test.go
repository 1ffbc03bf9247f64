package eventlog_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// modelPair is a channel: the source and the destination of messages.
type modelPair struct{ source, destination sharding.EntityID }

// modelMessages is the expected state of a shard's messages.
type modelMessages struct {
	outbox      []journal.Message
	deadLetters []journal.DeadLetter
	last        map[modelPair]journal.ChannelCounters
	received    map[modelPair]uint64
	owned       bool // copied for the entry that is being applied
}

// own copies the state for the current entry, which may then modify it. If the
// entry is rejected, the copy is dropped.
func (p *modelMessages) own() {
	if p.owned {
		return
	}
	*p = modelMessages{slices.Clone(p.outbox), slices.Clone(p.deadLetters), maps.Clone(p.last), maps.Clone(p.received), true}
	if p.last == nil {
		p.last, p.received = make(map[modelPair]journal.ChannelCounters), make(map[modelPair]uint64)
	}
}

// record applies the messages of a record. It returns false if the entry must
// be rejected.
func (p *modelMessages) record(r *journal.Record, at journal.ItemID) bool {
	var from journal.MessageSource
	if data := r.Section(journal.SectionSource); data != nil {
		p.own()
		switch data[0] {
		case journal.SourceEntity:
			s, err := journal.DecodeMessageSource(data)
			if err != nil {
				panic(err)
			}
			if from = s; !p.receive(r.Entity, &s) {
				return false
			}
			if refusal := r.Section(journal.SectionRefusal); refusal != nil {
				d, _ := journal.DecodeRefusal(refusal)
				p.deadLetters = append(p.deadLetters, journal.DeadLetter{
					ID: at, Source: sharding.EntityID{Type: string(s.Type), ID: string(s.ID)}, Destination: r.Entity, Number: s.Number,
					At: r.RecordedAt, Command: string(d.Command), Code: string(d.Code), Message: string(d.Message), Payload: bytes.Clone(d.Payload), Token: string(d.Token),
				})
			}
		case journal.SourceDeadLetter:
			id, _ := journal.DecodeDeadLetterSource(data)
			i := slices.IndexFunc(p.deadLetters, func(l journal.DeadLetter) bool { return l.ID == id })
			if i < 0 || p.deadLetters[i].Destination != r.Entity {
				return false
			}
			p.deadLetters = slices.Delete(p.deadLetters, i, i+1)
		}
	}
	tokens := journal.Tokens(r.Section(journal.SectionTokens))
	for data := r.Section(journal.SectionMessages); len(data) > 0; at.Item++ {
		op, rest, err := journal.NextMessageOp(data)
		if err == nil {
			op.Token, err = tokens.Next(at.Item)
		}
		if err != nil {
			panic(err)
		}
		data = rest
		answer := from.Answers && len(rest) == 0 && string(op.Type) == string(from.Type) && string(op.ID) == string(from.ID)
		p.addMessage(r.Entity, &op, r.RecordedAt, from.Hops, at, traceOf(r), answer)
	}
	return true
}

func (p *modelMessages) receive(e sharding.EntityID, s *journal.MessageSource) bool {
	pair := modelPair{sharding.EntityID{Type: string(s.Type), ID: string(s.ID)}, e}
	if had := p.received[pair]; had < s.After || had >= s.Number {
		return false
	}
	p.received[pair] = s.Number
	return true
}

func (p *modelMessages) addMessage(from sharding.EntityID, op *journal.MessageOp, now int64, hops uint8, at journal.ItemID, trace *journal.TraceContext, answer bool) {
	p.own()
	to := sharding.EntityID{Type: string(op.Type), ID: string(op.ID)}
	count := p.last[modelPair{from, to}]
	count.Last++
	p.last[modelPair{from, to}] = count
	p.outbox = append(p.outbox, journal.Message{
		ID: at, Source: from, Destination: to, Number: count.Last, At: now, Hops: hops, Answer: answer,
		Command: string(op.Command), OnReply: string(op.OnReply), OnReject: string(op.OnReject), Payload: bytes.Clone(op.Payload), Trace: trace, Token: string(op.Token),
	})
}

// steps applies an entry of outbox operations.
func (sh *modelShard) steps(p modelMessages, index uint64, body []byte) error {
	clock := sh.clock
	p.own()
	for n := uint32(0); len(body) > 0; n++ {
		s, rest, err := journal.NextOutboxOp(body)
		if err != nil {
			panic(err)
		}
		body = rest
		switch at := (journal.ItemID{Index: index, Ordinal: n}); s.Kind {
		case journal.OutboxAcknowledged:
			p.outbox = slices.DeleteFunc(p.outbox, func(o journal.Message) bool { return o.ID == s.ID })
		case journal.OutboxGivenUp:
			i := slices.IndexFunc(p.outbox, func(o journal.Message) bool { return o.ID == s.ID })
			if i < 0 {
				continue
			}
			clock = max(clock, s.At)
			o := p.outbox[i]
			p.outbox = slices.Delete(p.outbox, i, i+1)
			count := p.last[modelPair{o.Source, o.Destination}]
			if count.GivenUp == 0 || o.Number != count.GivenUp+1 {
				count.After = o.Number - 1
			}
			count.GivenUp = o.Number
			p.last[modelPair{o.Source, o.Destination}] = count
			if o.OnReject != "" {
				p.addMessage(o.Source, &journal.MessageOp{Type: []byte(o.Source.Type), ID: []byte(o.Source.ID), Command: []byte(o.OnReject), Payload: s.Answer, Token: []byte(o.Token)}, s.At, o.Hops, at, o.Trace, false)
				continue
			}
			p.deadLetters = append(p.deadLetters, journal.DeadLetter{ID: at, Source: o.Source, Destination: o.Destination, At: s.At, Command: o.Command,
				Code: string(s.Code), Message: string(s.Message), Payload: o.Payload, Token: o.Token})
		case journal.OutboxSentAgain:
			i := slices.IndexFunc(p.deadLetters, func(l journal.DeadLetter) bool { return l.ID == s.ID })
			if i < 0 {
				continue
			}
			l := p.deadLetters[i]
			if l.Number != 0 {
				return eventlog.ErrInvalid
			}
			p.deadLetters = slices.Delete(p.deadLetters, i, i+1)
			p.addMessage(l.Source, &journal.MessageOp{Type: []byte(l.Destination.Type), ID: []byte(l.Destination.ID), Command: []byte(l.Command), Payload: l.Payload, Token: []byte(l.Token)}, l.At, 0, at, nil, false)
		case journal.OutboxDiscarded:
			p.deadLetters = slices.DeleteFunc(p.deadLetters, func(l journal.DeadLetter) bool { return l.ID == s.ID })
		case journal.OutboxRefused, journal.OutboxRefusedToken:
			e := sharding.EntityID{Type: string(s.Type), ID: string(s.Entity)}
			if !p.receive(e, &s.Source) {
				return eventlog.ErrInvalid
			}
			clock = max(clock, s.At)
			source := sharding.EntityID{Type: string(s.Source.Type), ID: string(s.Source.ID)}
			if len(s.OnReject) > 0 {
				p.addMessage(e, &journal.MessageOp{Type: s.Source.Type, ID: s.Source.ID, Command: s.OnReject, Payload: s.Answer, Token: s.Token}, s.At, s.Source.Hops, at, nil, s.Source.Answers)
				continue
			}
			p.deadLetters = append(p.deadLetters, journal.DeadLetter{ID: at, Source: source, Destination: e, Number: s.Source.Number, At: s.At,
				Command: string(s.Command), Code: string(s.Code), Message: string(s.Message), Payload: bytes.Clone(s.Payload), Token: string(s.Token)})
		}
	}
	p.owned = false
	sh.messages, sh.clock = p, clock
	return nil
}

// addMessages makes a record send messages, or makes a message or a dead letter
// the cause of the record.
func (s *source) addMessages(r *journal.Record, sh *modelShard, taken map[modelPair]uint64) {
	switch made := r.Section(journal.SectionSource) != nil; {
	case made:
	case s.rng.IntN(4) == 0:
		pair := modelPair{s.entity(), r.Entity}
		taken[pair]++
		src := journal.MessageSource{Type: []byte(pair.source.Type), ID: []byte(pair.source.ID), Number: sh.messages.received[pair] + taken[pair]}
		src.After, src.Hops, src.Answers = src.Number-1, uint8(7*src.Number%70), src.Number%2 == 0
		if s.wrong && s.rng.IntN(20) == 0 {
			src.Number += uint64(s.rng.IntN(3)) - 1
		}
		if s.rng.IntN(20) == 0 {
			src.After -= min(src.After, uint64(s.rng.IntN(3)))
		}
		r.Sections = slices.Insert(r.Sections, 0, journal.Section{Kind: journal.SectionSource, Data: journal.AppendMessageSource(nil, &src)})
		if s.rng.IntN(6) == 0 {
			defer func() {
				r.Sections = append(r.Sections, journal.Section{Kind: journal.SectionRefusal, Data: journal.AppendRefusal(nil,
					&journal.Refusal{Code: []byte("no"), Message: []byte("never"), Command: []byte("pay"), Payload: s.bytes(60), Token: s.token()})})
			}()
		}
	case len(sh.messages.deadLetters) > 0 && s.rng.IntN(4) == 0:
		l := sh.messages.deadLetters[s.rng.IntN(len(sh.messages.deadLetters))]
		if l.Destination != r.Entity && !s.wrong {
			return
		}
		r.Sections = slices.Insert(r.Sections, 0, journal.Section{Kind: journal.SectionSource, Data: journal.AppendDeadLetterSource(nil, l.ID)})
	}
	var ops, tokens []byte
	if s.rng.IntN(3) == 0 {
		item := uint16(0)
		for n := s.rng.IntN(5); n > 0; n-- {
			to := s.entity()
			op := journal.MessageOp{Type: []byte(to.Type), ID: []byte(to.ID), Command: []byte("pay"), Payload: s.bytes(60)}
			if s.rng.IntN(2) == 0 {
				op.OnReply, op.OnReject = []byte("paid"), []byte("not-paid")
			}
			ops = journal.AppendMessageOp(ops, &op)
			if token := s.token(); token != nil {
				tokens = journal.AppendTokenOp(tokens, journal.TokenOp{Item: item, Token: token})
			}
			item++
		}
	}
	if len(ops) > 0 {
		r.Sections = append(r.Sections, journal.Section{Kind: journal.SectionMessages, Data: ops})
	}
	if len(tokens) > 0 {
		r.Sections = append(r.Sections, journal.Section{Kind: journal.SectionTokens, Data: tokens})
	}
}

// token draws the token of a message. Half of the messages have none.
func (s *source) token() []byte {
	if s.rng.IntN(2) == 0 {
		return nil
	}
	return append(s.bytes(31), 0)
}

// outboxEntry makes an entry of outbox operations: acknowledgements of
// messages, some of them repeated, rejections, and discards of dead letters.
func (s *source) outboxEntry(sh *modelShard, fence sharding.Term) []byte {
	b := journal.AppendEntryHeader(nil, journal.EntryOutbox, fence, s.number)
	taken := make(map[modelPair]uint64)
	for n := 1 + s.rng.IntN(8); n > 0; n-- {
		p := journal.OutboxOp{Kind: journal.OutboxAcknowledged, ID: journal.ItemID{Index: sh.index, Item: 7}}
		switch k := s.rng.IntN(8); {
		case k < 5 && len(sh.messages.outbox) > 0:
			p.ID = sh.messages.outbox[s.rng.IntN(min(len(sh.messages.outbox), 12))].ID
		case k == 5 && len(sh.messages.deadLetters) > 0:
			p.Kind, p.ID = journal.OutboxDiscarded, sh.messages.deadLetters[s.rng.IntN(len(sh.messages.deadLetters))].ID
			if s.rng.IntN(2) == 0 {
				p.Kind = journal.OutboxSentAgain
			}
		case k == 7 && len(sh.messages.outbox) > 0:
			p = s.giveUp(sh)
		case k == 6:
			pair := modelPair{s.entity(), s.entity()}
			taken[pair]++
			p = journal.OutboxOp{
				Kind: journal.OutboxRefused, Type: []byte(pair.destination.Type), Entity: []byte(pair.destination.ID), At: s.clock + 300, Command: []byte("pay"),
				Source: journal.MessageSource{Type: []byte(pair.source.Type), ID: []byte(pair.source.ID), Number: sh.messages.received[pair] + taken[pair]},
				Code:   []byte("not_found"), Message: []byte("there is none"), Payload: s.bytes(40),
			}
			if s.rng.IntN(2) == 0 {
				p.OnReject, p.Answer = []byte("not-paid"), []byte("{}")
			}
			if p.Token = s.token(); p.Token != nil {
				p.Kind = journal.OutboxRefusedToken
			}
			p.Source.After, p.Source.Hops, p.Source.Answers = p.Source.Number-1, uint8(7*p.Source.Number%70), p.Source.Number%2 == 0
			if s.wrong && s.rng.IntN(10) == 0 {
				p.Source.Number += uint64(s.rng.IntN(3)) - 1
			}
		}
		b = journal.AppendOutboxOp(b, &p)
	}
	return b
}

// giveUp makes the operation that gives up the first message of a channel.
func (s *source) giveUp(sh *modelShard) journal.OutboxOp {
	o := sh.messages.outbox[s.rng.IntN(len(sh.messages.outbox))]
	for _, first := range sh.messages.outbox {
		if first.Source == o.Source && first.Destination == o.Destination {
			o = first
			break
		}
	}
	return journal.OutboxOp{Kind: journal.OutboxGivenUp, ID: o.ID, At: s.clock + 200, Code: []byte("not_found"), Message: []byte("no such type"), Answer: []byte("{}")}
}

// traceOf returns the trace context of a record; nil if it has none.
func traceOf(r *journal.Record) *journal.TraceContext {
	in, err := journal.DecodeTraceContext(r.Section(journal.SectionTrace))
	if err != nil {
		return nil
	}
	return &in
}

func messageText(s journal.Message) string {
	in := "no span"
	if s.Trace != nil {
		in = fmt.Sprintf("%x", *s.Trace)
	}
	s.Trace = nil
	return fmt.Sprint(s, " ", in)
}

// checkMessages compares everything that can be read about messages with the
// model.
func checkMessages(t *testing.T, m *eventlog.Machine, id sharding.ShardID, sh *modelShard, rng *rand.Rand) {
	t.Helper()
	var totals journal.MessageTotals
	totals.Messages, totals.DeadLetters = uint64(len(sh.messages.outbox)), uint64(len(sh.messages.deadLetters))
	got := m.MessageTotals(id)
	if totals.MessageBytes, totals.DeadLetterBytes = got.MessageBytes, got.DeadLetterBytes; got != totals || (got.MessageBytes == 0) != (got.Messages == 0) {
		t.Fatalf("shard %d: totals %+v, want %+v", id, got, totals)
	}
	pending := make(map[sharding.EntityID]uint64)
	for _, s := range sh.messages.outbox {
		pending[s.Source]++
	}
	for e := range sh.entities {
		if n, asOf, err := m.PendingMessages(id, e); err != nil || n != pending[e] || asOf != sh.index {
			t.Fatalf("%s has %d sends, want %d: %v", e, n, pending[e], err)
		}
	}
	for pair, want := range sh.messages.received {
		if n, err := m.Received(id, pair.destination, pair.source); err != nil || n != want {
			t.Fatalf("%v has received %d, want %d: %v", pair, n, want, err)
		}
	}
	for pair, want := range sh.messages.last {
		if c, err := m.ChannelCounters(id, pair.source, pair.destination); err != nil || c != want {
			t.Fatalf("%v counts %+v, want %+v: %v", pair, c, want, err)
		}
	}
	after := journal.ItemID{}
	if n := len(sh.messages.outbox); n > 0 && rng.IntN(2) == 0 {
		after = sh.messages.outbox[rng.IntN(n)].ID
	}
	var messages, wantMessages, deadLetters, wantDeadLetters []string
	for _, s := range sh.messages.outbox {
		if one, err := m.Message(id, s.ID); err != nil || one == nil || messageText(*one) != messageText(s) {
			t.Fatalf("message %v: %v %v", s.ID, one, err)
		}
		next := journal.ItemID{Index: s.ID.Index, Ordinal: s.ID.Ordinal, Item: s.ID.Item + 1}
		if one, err := m.Message(id, next); err != nil || one != nil && one.ID != next {
			t.Fatalf("message %v: %v %v", next, one, err)
		}
		if after.Less(s.ID) {
			wantMessages = append(wantMessages, messageText(s))
		}
	}
	err := m.Outbox(context.Background(), id, after, func(s *journal.Message) error {
		messages = append(messages, messageText(*s))
		return nil
	})
	if err != nil || !slices.Equal(messages, wantMessages) {
		t.Fatalf("outbox of shard %d after %v: %v\n got %q\nwant %q", id, after, err, messages, wantMessages)
	}
	for _, l := range sh.messages.deadLetters {
		wantDeadLetters = append(wantDeadLetters, fmt.Sprint(l))
		if one, err := m.DeadLetter(id, l.ID); err != nil || one == nil || fmt.Sprint(*one) != fmt.Sprint(l) {
			t.Fatalf("letter %v: %v %v", l, one, err)
		}
	}
	err = m.DeadLetters(context.Background(), id, journal.ItemID{}, func(l *journal.DeadLetter) error {
		deadLetters = append(deadLetters, fmt.Sprint(*l))
		return nil
	})
	if err != nil || !slices.Equal(deadLetters, wantDeadLetters) {
		t.Fatalf("dead letters of shard %d: %v\n got %q\nwant %q", id, err, deadLetters, wantDeadLetters)
	}
}
