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

// twinPair is two entities: who sends, and who gets it.
type twinPair struct{ source, destination sharding.EntityID }

// twinPost is what a shard must have of sends.
type twinPost struct {
	outbox   []journal.Send
	letters  []journal.Letter
	last     map[twinPair]journal.PairCount
	received map[twinPair]uint64
	owned    bool // by an entry that is being applied
}

// own makes it the entry's, to be changed.
func (p *twinPost) own() {
	if p.owned {
		return
	}
	*p = twinPost{slices.Clone(p.outbox), slices.Clone(p.letters), maps.Clone(p.last), maps.Clone(p.received), true}
	if p.last == nil {
		p.last, p.received = make(map[twinPair]journal.PairCount), make(map[twinPair]uint64)
	}
}

// record applies what a record says; false refuses its entry.
func (p *twinPost) record(r *journal.Record, at journal.ItemID) bool {
	if data := r.Section(journal.SectionSource); data != nil {
		p.own()
		switch data[0] {
		case journal.SourceEntity:
			s, err := journal.DecodeSendSource(data)
			if err != nil {
				panic(err)
			}
			if !p.receive(r.Entity, &s) {
				return false
			}
			if refusal := r.Section(journal.SectionRefusal); refusal != nil {
				d, _ := journal.DecodeRefusal(refusal)
				p.letters = append(p.letters, journal.Letter{
					ID: at, Source: sharding.EntityID{Type: string(s.Type), ID: string(s.ID)}, Destination: r.Entity, Number: s.Number,
					At: r.RecordedAt, Command: string(d.Command), Code: string(d.Code), Message: string(d.Message), Payload: bytes.Clone(d.Payload),
				})
			}
		case journal.SourceLetter:
			id, _ := journal.DecodeLetterSource(data)
			i := slices.IndexFunc(p.letters, func(l journal.Letter) bool { return l.ID == id })
			if i < 0 || p.letters[i].Destination != r.Entity {
				return false
			}
			p.letters = slices.Delete(p.letters, i, i+1)
		}
	}
	for data := r.Section(journal.SectionSends); len(data) > 0; at.Item++ {
		op, rest, err := journal.NextSendOp(data)
		if err != nil {
			panic(err)
		}
		data = rest
		p.send(r.Entity, &op, r.RecordedAt, at)
	}
	return true
}

func (p *twinPost) receive(e sharding.EntityID, s *journal.SendSource) bool {
	pair := twinPair{sharding.EntityID{Type: string(s.Type), ID: string(s.ID)}, e}
	if had := p.received[pair]; had < s.After || had >= s.Number {
		return false
	}
	p.received[pair] = s.Number
	return true
}

func (p *twinPost) send(from sharding.EntityID, op *journal.SendOp, now int64, at journal.ItemID) {
	p.own()
	to := sharding.EntityID{Type: string(op.Type), ID: string(op.ID)}
	count := p.last[twinPair{from, to}]
	count.Last++
	p.last[twinPair{from, to}] = count
	p.outbox = append(p.outbox, journal.Send{
		ID: at, Source: from, Destination: to, Number: count.Last, At: now,
		Command: string(op.Command), OnReply: string(op.OnReply), OnReject: string(op.OnReject), Payload: bytes.Clone(op.Payload),
	})
}

// steps applies an entry of steps.
func (sh *twinShard) steps(p twinPost, index uint64, body []byte) error {
	clock := sh.clock
	p.own()
	for n := uint32(0); len(body) > 0; n++ {
		s, rest, err := journal.NextPost(body)
		if err != nil {
			panic(err)
		}
		body = rest
		switch at := (journal.ItemID{Index: index, Ordinal: n}); s.Kind {
		case journal.PostAcknowledged:
			p.outbox = slices.DeleteFunc(p.outbox, func(o journal.Send) bool { return o.ID == s.ID })
		case journal.PostGivenUp:
			i := slices.IndexFunc(p.outbox, func(o journal.Send) bool { return o.ID == s.ID })
			if i < 0 {
				continue
			}
			clock = max(clock, s.At)
			o := p.outbox[i]
			p.outbox = slices.Delete(p.outbox, i, i+1)
			count := p.last[twinPair{o.Source, o.Destination}]
			if count.GivenUp == 0 || o.Number != count.GivenUp+1 {
				count.After = o.Number - 1
			}
			count.GivenUp = o.Number
			p.last[twinPair{o.Source, o.Destination}] = count
			if o.OnReject != "" {
				p.send(o.Source, &journal.SendOp{Type: []byte(o.Source.Type), ID: []byte(o.Source.ID), Command: []byte(o.OnReject), Payload: s.Answer}, s.At, at)
				continue
			}
			p.letters = append(p.letters, journal.Letter{ID: at, Source: o.Source, Destination: o.Destination, At: s.At, Command: o.Command,
				Code: string(s.Code), Message: string(s.Message), Payload: o.Payload})
		case journal.PostSentAgain:
			i := slices.IndexFunc(p.letters, func(l journal.Letter) bool { return l.ID == s.ID })
			if i < 0 {
				continue
			}
			l := p.letters[i]
			if l.Number != 0 {
				return eventlog.ErrInvalid
			}
			p.letters = slices.Delete(p.letters, i, i+1)
			p.send(l.Source, &journal.SendOp{Type: []byte(l.Destination.Type), ID: []byte(l.Destination.ID), Command: []byte(l.Command), Payload: l.Payload}, l.At, at)
		case journal.PostDiscarded:
			p.letters = slices.DeleteFunc(p.letters, func(l journal.Letter) bool { return l.ID == s.ID })
		case journal.PostRefused:
			e := sharding.EntityID{Type: string(s.Type), ID: string(s.Entity)}
			if !p.receive(e, &s.Source) {
				return eventlog.ErrInvalid
			}
			clock = max(clock, s.At)
			source := sharding.EntityID{Type: string(s.Source.Type), ID: string(s.Source.ID)}
			if len(s.OnReject) > 0 {
				p.send(e, &journal.SendOp{Type: s.Source.Type, ID: s.Source.ID, Command: s.OnReject, Payload: s.Answer}, s.At, at)
				continue
			}
			p.letters = append(p.letters, journal.Letter{ID: at, Source: source, Destination: e, Number: s.Source.Number, At: s.At,
				Command: string(s.Command), Code: string(s.Code), Message: string(s.Message), Payload: bytes.Clone(s.Payload)})
		}
	}
	p.owned = false
	sh.post, sh.clock = p, clock
	return nil
}

// sends makes a record send, or be made by a send or a dead letter.
func (s *source) sends(r *journal.Record, sh *twinShard, taken map[twinPair]uint64) {
	switch made := r.Section(journal.SectionSource) != nil; {
	case made:
	case s.rng.IntN(4) == 0:
		pair := twinPair{s.entity(), r.Entity}
		taken[pair]++
		src := journal.SendSource{Type: []byte(pair.source.Type), ID: []byte(pair.source.ID), Number: sh.post.received[pair] + taken[pair]}
		src.After = src.Number - 1
		if s.wrong && s.rng.IntN(20) == 0 {
			src.Number += uint64(s.rng.IntN(3)) - 1
		}
		if s.rng.IntN(20) == 0 {
			src.After -= min(src.After, uint64(s.rng.IntN(3)))
		}
		r.Sections = slices.Insert(r.Sections, 0, journal.Section{Kind: journal.SectionSource, Data: journal.AppendSendSource(nil, &src)})
		if s.rng.IntN(6) == 0 {
			defer func() {
				r.Sections = append(r.Sections, journal.Section{Kind: journal.SectionRefusal, Data: journal.AppendRefusal(nil,
					&journal.Refusal{Code: []byte("no"), Message: []byte("never"), Command: []byte("pay"), Payload: s.bytes(60)})})
			}()
		}
	case len(sh.post.letters) > 0 && s.rng.IntN(4) == 0:
		l := sh.post.letters[s.rng.IntN(len(sh.post.letters))]
		if l.Destination != r.Entity && !s.wrong {
			return
		}
		r.Sections = slices.Insert(r.Sections, 0, journal.Section{Kind: journal.SectionSource, Data: journal.AppendLetterSource(nil, l.ID)})
	}
	var ops []byte
	if s.rng.IntN(3) == 0 {
		for n := s.rng.IntN(5); n > 0; n-- {
			to := s.entity()
			op := journal.SendOp{Type: []byte(to.Type), ID: []byte(to.ID), Command: []byte("pay"), Payload: s.bytes(60)}
			if s.rng.IntN(2) == 0 {
				op.OnReply, op.OnReject = []byte("paid"), []byte("not-paid")
			}
			ops = journal.AppendSendOp(ops, &op)
		}
	}
	if len(ops) > 0 {
		r.Sections = append(r.Sections, journal.Section{Kind: journal.SectionSends, Data: ops})
	}
}

// post is an entry of steps: sends that are acknowledged, some again, refusals
// and dead letters that are discarded.
func (s *source) post(sh *twinShard, fence sharding.Term) []byte {
	b := journal.AppendEntryHeader(nil, journal.EntryPost, fence, s.number)
	taken := make(map[twinPair]uint64)
	for n := 1 + s.rng.IntN(8); n > 0; n-- {
		p := journal.Post{Kind: journal.PostAcknowledged, ID: journal.ItemID{Index: sh.index, Item: 7}}
		switch k := s.rng.IntN(8); {
		case k < 5 && len(sh.post.outbox) > 0:
			p.ID = sh.post.outbox[s.rng.IntN(min(len(sh.post.outbox), 12))].ID
		case k == 5 && len(sh.post.letters) > 0:
			p.Kind, p.ID = journal.PostDiscarded, sh.post.letters[s.rng.IntN(len(sh.post.letters))].ID
			if s.rng.IntN(2) == 0 {
				p.Kind = journal.PostSentAgain
			}
		case k == 7 && len(sh.post.outbox) > 0:
			p = s.giveUp(sh)
		case k == 6:
			pair := twinPair{s.entity(), s.entity()}
			taken[pair]++
			p = journal.Post{
				Kind: journal.PostRefused, Type: []byte(pair.destination.Type), Entity: []byte(pair.destination.ID), At: s.clock + 300, Command: []byte("pay"),
				Source: journal.SendSource{Type: []byte(pair.source.Type), ID: []byte(pair.source.ID), Number: sh.post.received[pair] + taken[pair]},
				Code:   []byte("not_found"), Message: []byte("there is none"), Payload: s.bytes(40),
			}
			if s.rng.IntN(2) == 0 {
				p.OnReject, p.Answer = []byte("not-paid"), []byte("{}")
			}
			p.Source.After = p.Source.Number - 1
			if s.wrong && s.rng.IntN(10) == 0 {
				p.Source.Number += uint64(s.rng.IntN(3)) - 1
			}
		}
		b = journal.AppendPost(b, &p)
	}
	return b
}

// giveUp gives up the first send of a pair.
func (s *source) giveUp(sh *twinShard) journal.Post {
	o := sh.post.outbox[s.rng.IntN(len(sh.post.outbox))]
	for _, first := range sh.post.outbox {
		if first.Source == o.Source && first.Destination == o.Destination {
			o = first
			break
		}
	}
	return journal.Post{Kind: journal.PostGivenUp, ID: o.ID, At: s.clock + 200, Code: []byte("not_found"), Message: []byte("no such type"), Answer: []byte("{}")}
}

// checkPost compares all that can be read of sends.
func checkPost(t *testing.T, m *eventlog.Machine, id sharding.ShardID, sh *twinShard, rng *rand.Rand) {
	t.Helper()
	var totals journal.SendTotals
	totals.Sends, totals.Letters = uint64(len(sh.post.outbox)), uint64(len(sh.post.letters))
	got := m.SendTotals(id)
	if totals.SendBytes, totals.LetterBytes = got.SendBytes, got.LetterBytes; got != totals || (got.SendBytes == 0) != (got.Sends == 0) {
		t.Fatalf("shard %d: totals %+v, want %+v", id, got, totals)
	}
	pending := make(map[sharding.EntityID]uint64)
	for _, s := range sh.post.outbox {
		pending[s.Source]++
	}
	for e := range sh.entities {
		if n, asOf, err := m.PendingSends(id, e); err != nil || n != pending[e] || asOf != sh.index {
			t.Fatalf("%s has %d sends, want %d: %v", e, n, pending[e], err)
		}
	}
	for pair, want := range sh.post.received {
		if n, err := m.Received(id, pair.destination, pair.source); err != nil || n != want {
			t.Fatalf("%v has received %d, want %d: %v", pair, n, want, err)
		}
	}
	for pair, want := range sh.post.last {
		if c, err := m.PairCount(id, pair.source, pair.destination); err != nil || c != want {
			t.Fatalf("%v counts %+v, want %+v: %v", pair, c, want, err)
		}
	}
	after := journal.ItemID{}
	if n := len(sh.post.outbox); n > 0 && rng.IntN(2) == 0 {
		after = sh.post.outbox[rng.IntN(n)].ID
	}
	var sends, wantSends, letters, wantLetters []string
	for _, s := range sh.post.outbox {
		if after.Less(s.ID) {
			wantSends = append(wantSends, fmt.Sprint(s))
		}
	}
	err := m.Outbox(context.Background(), id, after, func(s *journal.Send) error {
		sends = append(sends, fmt.Sprint(*s))
		return nil
	})
	if err != nil || !slices.Equal(sends, wantSends) {
		t.Fatalf("outbox of shard %d after %v: %v\n got %q\nwant %q", id, after, err, sends, wantSends)
	}
	for _, l := range sh.post.letters {
		wantLetters = append(wantLetters, fmt.Sprint(l))
		if one, err := m.Letter(id, l.ID); err != nil || one == nil || fmt.Sprint(*one) != fmt.Sprint(l) {
			t.Fatalf("letter %v: %v %v", l, one, err)
		}
	}
	err = m.Letters(context.Background(), id, journal.ItemID{}, func(l *journal.Letter) error {
		letters = append(letters, fmt.Sprint(*l))
		return nil
	})
	if err != nil || !slices.Equal(letters, wantLetters) {
		t.Fatalf("dead letters of shard %d: %v\n got %q\nwant %q", id, err, letters, wantLetters)
	}
}
