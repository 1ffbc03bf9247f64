package entity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// pair is a channel: a sending and a receiving entity.
type pair struct{ from, to sharding.EntityID }

// messages is the state of the messages in the world's log, and of the world's
// outbox dispatcher.
type messages struct {
	index       uint64
	outbox      []journal.Message
	deadLetters []journal.DeadLetter
	last        map[pair]uint64
	received    map[pair]uint64

	all       map[pair][]journal.Message // all messages ever sent, by number
	inquiries []*inquiry
	arrived   []request.Arrived
	faults    map[journal.ItemID]int
	under     int          // number of deliveries in flight
	flying    map[pair]int // deliveries in flight by channel
	// Counts of the outcomes that occurred.
	delivered, duplicates, gaps, answers, tokens, refusals, full, dead int
}

func newMessages() messages {
	return messages{last: map[pair]uint64{}, received: map[pair]uint64{}, all: map[pair][]journal.Message{}, faults: map[journal.ItemID]int{}, flying: map[pair]int{}}
}

// staged copies the parts that an entry may change.
func (p messages) staged() messages {
	p.outbox, p.deadLetters = slices.Clone(p.outbox), slices.Clone(p.deadLetters)
	p.last, p.received, p.all = maps.Clone(p.last), maps.Clone(p.received), maps.Clone(p.all)
	return p
}

func (w *world) Received(_ sharding.ShardID, e, source sharding.EntityID) (uint64, error) {
	return w.messages.received[pair{source, e}], nil
}

// IsAbsent recognizes an absent entity only at every second load. It may
// always report that an entity is not absent.
func (w *world) IsAbsent(_ sharding.ShardID, e sharding.EntityID) bool {
	return w.core.stats.Loads%2 == 0 && w.heads[e.ID] == nil
}

// ReadRecent may skip records of an entity that never had an event, if the
// limits exclude their commands from every window.
func (w *world) ReadRecent(ctx context.Context, shard sharding.ShardID, e sharding.EntityID, commands, replyBytes int, age int64, _ func(int) error, fn func(*journal.Record, journal.Hash) error) (skipped bool, err error) {
	var all []journal.Record
	for i := range w.log {
		if w.log[i].Entity == e {
			all = append(all, w.log[i])
		}
	}
	if len(all) == 0 || all[len(all)-1].Last() > 0 {
		return false, w.Read(ctx, shard, e, 0, fn)
	}
	first, n, replies := len(all)-1, 0, 0
	for ; first > 0 && n <= commands && replies <= replyBytes && all[len(all)-1].RecordedAt-all[first].RecordedAt <= age && len(all)-first <= 4*commands; first-- {
		if !all[first].Internal() {
			n, replies = n+1, replies+len(all[first].Reply)
		}
	}
	w.records = 0
	for i := range all[first:] {
		w.records++
		if err := fn(&all[first+i], journal.Hash{}); err != nil {
			return first > 0, err
		}
	}
	return first > 0, nil
}

func (w *world) PendingMessages(_ sharding.ShardID, e sharding.EntityID) (n, asOf uint64, err error) {
	for i := range w.messages.outbox {
		if w.messages.outbox[i].Source == e {
			n++
		}
	}
	return n, w.messages.index, nil
}

// OpenRuns counts the runs of all types.
func (w *world) OpenRuns(sharding.ShardID, string) (uint64, error) {
	open := 0
	for i := range w.log {
		if r := &w.log[i]; r.Expected == 0 && len(r.Events) > 0 {
			open++
		}
		if n := len(w.log[i].Events); n > 0 && w.log[i].Events[n-1].Type == abi.RunEnded {
			open--
		}
	}
	return uint64(open), nil
}

func (w *world) TimerRoom(sharding.ShardID, sharding.EntityID, [][]byte) (has, added int) {
	return 0, 0
}

func (w *world) MessageTotals(sharding.ShardID) (t journal.MessageTotals) {
	t.Messages, t.DeadLetters = uint64(len(w.messages.outbox)), uint64(len(w.messages.deadLetters))
	return t
}

func (w *world) lookUp(q *inquiry) {
	q.number, q.err = w.Received(q.shard, q.id, q.source)
	w.messages.inquiries = append(w.messages.inquiries, q)
}

// reply delivers the answer of the oldest inquiry.
func (w *world) reply() {
	if len(w.messages.inquiries) > 0 {
		q := w.messages.inquiries[0]
		w.messages.inquiries = w.messages.inquiries[1:]
		w.core.event(&coreEvent{Kind: inquiryAnswered, inquiry: q})
	}
}

// answerWithMessages implements the commands "send" and "ask". Most of their
// messages are executed, some are rejected, before or after an event, and some
// fail.
func (w *world) answerWithMessages(out []byte, req *abi.Request) []byte {
	for range 1 + w.rnd.IntN(3) {
		s := abi.Send{
			EntityType: []byte("tally"), EntityID: strconv.AppendInt(nil, int64(w.rnd.IntN(5)), 10), Payload: req.Payload,
			Command: []byte([]string{"add", "add", "twice", "note", "deny", "refuse", "trap", "send", "delete"}[w.rnd.IntN(9)]),
		}
		if s.WantsAnswer = string(req.Name) == "ask"; s.WantsAnswer {
			s.OnReply, s.OnReject = []byte("heard"), []byte("unheard")
			s.Token = w.token()
		}
		out = abi.AppendSend(out, s)
	}
	return out
}

// token returns a random token for a send; every fourth send has no token.
func (w *world) token() []byte {
	if w.rnd.IntN(4) == 0 {
		return nil
	}
	return strconv.AppendUint(nil, w.rnd.Uint64(), 36)
}

// record applies the journal's rules to the messages of a record.
func (p *messages) record(r *journal.Record, at journal.ItemID) error {
	if data := r.Section(journal.SectionSource); data != nil && data[0] == journal.SourceEntity {
		s, err := journal.DecodeMessageSource(data)
		if err != nil {
			panic(err)
		}
		if err := p.receive(r.Entity, &s); err != nil {
			return err
		}
		if refusal := r.Section(journal.SectionRefusal); refusal != nil {
			p.deadLetters = append(p.deadLetters, journal.DeadLetter{ID: at, Destination: r.Entity, Number: s.Number})
		}
	} else if data != nil && data[0] == journal.SourceDeadLetter {
		id, _ := journal.DecodeDeadLetterSource(data)
		n := len(p.deadLetters)
		if p.deadLetters = slices.DeleteFunc(p.deadLetters, func(l journal.DeadLetter) bool { return l.ID == id }); len(p.deadLetters) == n {
			return errors.New("no such letter")
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
		p.add(r.Entity, &op, at)
	}
	return tokens.End()
}

func (p *messages) receive(e sharding.EntityID, s *journal.MessageSource) error {
	k := pair{sharding.EntityID{Type: string(s.Type), ID: string(s.ID)}, e}
	if s.After != p.received[k] || s.Number != s.After+1 {
		return fmt.Errorf("send %d after %d", s.Number, p.received[k])
	}
	p.received[k]++
	return nil
}

func (p *messages) add(from sharding.EntityID, op *journal.MessageOp, at journal.ItemID) {
	k := pair{from, sharding.EntityID{Type: string(op.Type), ID: string(op.ID)}}
	p.last[k]++
	s := journal.Message{ID: at, Source: k.from, Destination: k.to, Number: p.last[k], Command: string(op.Command),
		OnReply: string(op.OnReply), OnReject: string(op.OnReject), Payload: bytes.Clone(op.Payload), Token: string(op.Token)}
	p.outbox = append(p.outbox, s)
	p.all[k] = append(p.all[k][:len(p.all[k]):len(p.all[k])], s)
}

func (p *messages) steps(body []byte) error {
	for n := uint32(0); len(body) > 0; n++ {
		s, rest, err := journal.NextOutboxOp(body)
		if err != nil {
			panic(err)
		}
		body = rest
		at := journal.ItemID{Index: p.index, Ordinal: n}
		switch s.Kind {
		case journal.OutboxAcknowledged:
			p.outbox = slices.DeleteFunc(p.outbox, func(o journal.Message) bool { return o.ID == s.ID })
		case journal.OutboxDiscarded:
			p.deadLetters = slices.DeleteFunc(p.deadLetters, func(l journal.DeadLetter) bool { return l.ID == s.ID })
		default:
			e := sharding.EntityID{Type: string(s.Type), ID: string(s.Entity)}
			if err := p.receive(e, &s.Source); err != nil {
				return err
			}
			if len(s.OnReject) > 0 {
				p.add(e, &journal.MessageOp{Type: s.Source.Type, ID: s.Source.ID, Command: s.OnReject, Payload: s.Answer, Token: s.Token}, at)
			} else {
				p.deadLetters = append(p.deadLetters, journal.DeadLetter{ID: at, Destination: e, Number: s.Source.Number})
			}
		}
	}
	return nil
}

// checkDelivery compares the record of a message with the message sent.
func (w *world) checkDelivery(r *journal.Record) {
	data := r.Section(journal.SectionSource)
	if data == nil || data[0] != journal.SourceEntity {
		return
	}
	src, _ := journal.DecodeMessageSource(data)
	from := sharding.EntityID{Type: string(src.Type), ID: string(src.ID)}
	s := w.messages.all[pair{from, r.Entity}][src.Number-1]
	sent := 0
	tokens := journal.Tokens(r.Section(journal.SectionTokens))
	for data := r.Section(journal.SectionMessages); len(data) > 0; sent++ {
		op, rest, _ := journal.NextMessageOp(data)
		if token, _ := tokens.Next(uint16(sent)); s.OnReply != "" && len(rest) == 0 {
			if string(token) != s.Token {
				w.problem("send %d of %s to %s has the token %q, its outcome %q", src.Number, from, r.Entity, s.Token, token)
			}
			if s.Token != "" {
				w.messages.tokens++
			}
		}
		if data = rest; s.OnReply == "" && s.Command != "send" || s.OnReply != "" && len(data) == 0 && (string(op.ID) != from.ID || op.WantsAnswer()) {
			w.problem("send %d of %s to %s answered with %+v", src.Number, from, r.Entity, op)
		}
	}
	events, refused := len(r.Events), r.Section(journal.SectionRefusal) != nil
	if r.Flags&journal.FlagTombstone != 0 && events > 0 {
		events--
	}
	want := map[string]int{"add": 1, "twice": 2, "send": 1, "delete": 1, "heard": 1, "unheard": 1}[s.Command]
	if w.durable {
		want = min(want, 1)
	}
	isRefusal := s.Command == "deny" || s.Command == "refuse"
	switch {
	case r.CommandID != request.SendCommand(from, src.Number):
		w.problem("send %d of %s to %s has the command id %s", src.Number, from, r.Entity, r.CommandID)
	case events != want || s.OnReply == "" && refused != isRefusal || s.OnReply != "" && (refused || sent == 0):
		w.problem("send %d of %s to %s, %q answered %q, left %d events, %d sends, refusal %v", src.Number, from, r.Entity, s.Command, s.OnReply, events, sent, refused)
	case want > 0 && !w.durable && r.Events[0].Type != abi.RunEnded && !strings.HasSuffix(s.Command, "heard") && string(r.Events[0].Payload) != string(s.Payload):
		w.problem("send %d of %s to %s had %q, the record %q", src.Number, from, r.Entity, s.Payload, r.Events[0].Payload)
	}
	if strings.HasSuffix(s.Command, "heard") {
		w.messages.answers++
	}
	if refused || isRefusal {
		w.messages.refusals++
	}
}

// delivery is a delivery in flight.
type delivery struct {
	w *world
	s journal.Message
}

// pairWindow is the number of concurrent deliveries per channel. With only
// one, a message that finds no room would block later messages, whose
// execution may free that room.
const pairWindow = 5

// waiting returns the messages of the outbox whose channel may have another
// delivery in flight.
func (p *messages) waiting() []journal.Message {
	return slices.DeleteFunc(slices.Clone(p.outbox), func(s journal.Message) bool { return p.flying[pair{s.Source, s.Destination}] >= pairWindow })
}

// pumpOnce either delivers a message from the outbox or acknowledges
// delivered messages. Usually it delivers the next message, rarely a message
// whose turn has not come or that was delivered before.
func (w *world) pumpOnce() {
	p := &w.messages
	if len(p.arrived) > 0 && w.rnd.IntN(3) == 0 {
		r := &request.Request{Kind: request.Acknowledge, Shard: worldShard, Delivery: &request.Delivery{Arrived: p.arrived}, Done: &acknowledger{w: w}}
		p.arrived = nil
		w.core.submit(w.now, []*request.Request{r})
		return
	}
	if len(p.deadLetters) > 0 && w.rnd.IntN(10) == 0 {
		l := p.deadLetters[w.rnd.IntN(len(p.deadLetters))]
		r := &request.Request{Kind: request.Redeliver, Shard: worldShard, Entity: l.Destination, Name: "add", Payload: []byte("5"), ID: "letter",
			ExpectedSequence: request.NoExpectation, Delivery: &request.Delivery{DeadLetter: l.ID, Source: l.Destination}, Done: &acknowledger{w: w}}
		if w.rnd.IntN(2) == 0 {
			r.Kind = request.Discard
		}
		w.core.submit(w.now, []*request.Request{r})
		return
	}
	waiting := p.waiting()
	if len(waiting) == 0 || p.under > 20 {
		return
	}
	s := waiting[w.rnd.IntN(min(len(waiting), 1+w.rnd.IntN(4)))]
	if w.rnd.IntN(20) == 0 { // like an outbox dispatcher whose knowledge is outdated
		s = p.all[pair{s.Source, s.Destination}][w.rnd.Uint64N(s.Number)]
	}
	d := &request.Delivery{Source: s.Source, Number: s.Number, After: s.Number - 1, OnReply: s.OnReply, OnReject: s.OnReject, Token: s.Token}
	if p.faults[s.ID] > 2 {
		d.Refuse = &request.RejectedError{Code: request.CodeInternal, Message: "it fails"}
	}
	r := &request.Request{
		Kind: request.Deliver, Entity: s.Destination, Name: s.Command, Payload: s.Payload, ID: request.SendCommand(s.Source, s.Number), ServerID: true,
		ExpectedSequence: request.NoExpectation, Delivery: d, Shard: worldShard, Done: &delivery{w, s},
	}
	if w.rnd.IntN(30) == 0 {
		r.Deadline = w.now.Add(time.Millisecond)
	}
	p.under++
	p.flying[pair{s.Source, s.Destination}]++
	w.core.submit(w.now, []*request.Request{r})
}

// Complete checks that a message that was reported as delivered is in the log.
func (m *delivery) Complete(r *request.Request) {
	p, k := &m.w.messages, pair{m.s.Source, m.s.Destination}
	p.under--
	p.flying[k]--
	var gap *request.GapError
	var fault *request.GuestFaultError
	switch err := r.Result.Err; {
	case err == nil:
		if p.received[k] < m.s.Number {
			m.w.problem("send %d of %s to %s arrived; the log has %d of them", m.s.Number, k.from, k.to, p.received[k])
		}
		if p.delivered++; r.Result.Duplicate {
			p.duplicates++
		}
		p.arrived = append(p.arrived, request.Arrived{ID: m.s.ID, Source: m.s.Source})
	case errors.As(err, &gap):
		if p.gaps++; gap.Wanted > m.s.Number || gap.Wanted == m.s.Number {
			m.w.problem("message %d is not executed because message %d is missing", m.s.Number, gap.Wanted)
		}
	case errors.As(err, &fault):
		p.faults[m.s.ID]++
	case errors.Is(err, request.ErrOutboxFull):
		p.full++
	}
}

// acknowledger checks that each request to the outbox is completed once.
type acknowledger struct {
	w    *world
	done bool
}

func (a *acknowledger) Complete(r *request.Request) {
	if a.done {
		a.w.problem("a request was completed twice")
	}
	a.done = true
	if r.Kind == request.Redeliver && r.Result.Err == nil {
		a.w.messages.dead++
	}
	if r.Kind == request.Acknowledge && r.Result.Err != nil { // the messages must be acknowledged again later
		a.w.messages.arrived = append(a.w.messages.arrived, r.Delivery.Arrived...)
	}
}

// checkSends compares the messages that are left at the end with the log.
func (w *world) checkSends() {
	for k, n := range w.messages.last {
		if w.messages.received[k] != n {
			w.problem("%s has sent %d to %s, which has %d", k.from, n, k.to, w.messages.received[k])
		}
	}
	if n := len(w.messages.outbox); n > 0 {
		w.problem("%d sends are left", n)
	}
	for _, e := range w.core.shard(worldShard).entities.All() {
		if e.phase == inMemory && e.outbox() != 0 {
			w.problem("%s counts %d sends on their way", e.id, e.outbox())
		}
	}
	if m := w.core.shard(worldShard).log.Messages(); m != (messageTotals{}) {
		w.problem("the executor counts %+v in flight", m)
	}
}

// messagesLeft reports whether messages are in flight.
func (w *world) messagesLeft() bool {
	return len(w.messages.outbox) > 0 || w.messages.under > 0 || len(w.messages.inquiries) > 0
}
