package entity

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// pair is two entities: who sends, and who gets it.
type pair struct{ from, to sharding.EntityID }

// post is what the world's log says of sends, and the world's pump.
type post struct {
	index    uint64
	outbox   []journal.Send
	letters  []journal.Letter
	last     map[pair]uint64
	received map[pair]uint64

	all       map[pair][]journal.Send // ever made, by number
	inquiries []*inquiry
	arrived   []Arrived
	faults    map[journal.ItemID]int
	under     int // deliveries under way
	// What was met.
	delivered, again, gaps, answers, refusals, full, dead int
}

func newPost() post {
	return post{last: map[pair]uint64{}, received: map[pair]uint64{}, all: map[pair][]journal.Send{}, faults: map[journal.ItemID]int{}}
}

// staged is a copy of what an entry may change.
func (p post) staged() post {
	p.outbox, p.letters = slices.Clone(p.outbox), slices.Clone(p.letters)
	p.last, p.received, p.all = maps.Clone(p.last), maps.Clone(p.received), maps.Clone(p.all)
	return p
}

func (w *world) Received(_ sharding.ShardID, e, source sharding.EntityID) (uint64, error) {
	return w.post.received[pair{source, e}], nil
}

func (w *world) PendingSends(_ sharding.ShardID, e sharding.EntityID) (n, asOf uint64, err error) {
	for i := range w.post.outbox {
		if w.post.outbox[i].Source == e {
			n++
		}
	}
	return n, w.post.index, nil
}

func (w *world) SendTotals(sharding.ShardID) (t journal.SendTotals) {
	t.Sends, t.Letters = uint64(len(w.post.outbox)), uint64(len(w.post.letters))
	return t
}

func (w *world) lookUp(q *inquiry) {
	q.read(w.t.Context(), w)
	w.post.inquiries = append(w.post.inquiries, q)
}

// reply brings back the oldest answer of an inquiry.
func (w *world) reply() {
	if len(w.post.inquiries) > 0 {
		q := w.post.inquiries[0]
		w.post.inquiries = w.post.inquiries[1:]
		w.core.event(&event{kind: evAnswered, ask: q})
	}
}

// sends is what the commands "send" and "ask" send: most is carried out, some
// refused, before or after it emits, some fails.
func (w *world) sends(out []byte, req *abi.Request) []byte {
	for range 1 + w.rnd.IntN(3) {
		s := abi.Send{
			EntityType: []byte("tally"), EntityID: strconv.AppendInt(nil, int64(w.rnd.IntN(5)), 10), Payload: req.Payload,
			Command: []byte([]string{"add", "add", "twice", "note", "deny", "refuse", "trap", "send", "delete"}[w.rnd.IntN(9)]),
		}
		if s.WantsAnswer = string(req.Name) == "ask"; s.WantsAnswer {
			s.OnReply, s.OnReject = []byte("heard"), []byte("unheard")
		}
		out = abi.AppendSend(out, s)
	}
	return out
}

// record is the journal's rule for the sends of a record.
func (p *post) record(r *journal.Record, at journal.ItemID) error {
	if data := r.Section(journal.SectionSource); data != nil && data[0] == journal.SourceEntity {
		s, err := journal.DecodeSendSource(data)
		if err != nil {
			panic(err)
		}
		if err := p.receive(r.Entity, &s); err != nil {
			return err
		}
		if refusal := r.Section(journal.SectionRefusal); refusal != nil {
			p.letters = append(p.letters, journal.Letter{ID: at, Destination: r.Entity, Number: s.Number})
		}
	} else if data != nil && data[0] == journal.SourceLetter {
		id, _ := journal.DecodeLetterSource(data)
		n := len(p.letters)
		if p.letters = slices.DeleteFunc(p.letters, func(l journal.Letter) bool { return l.ID == id }); len(p.letters) == n {
			return errors.New("no such letter")
		}
	}
	for data := r.Section(journal.SectionSends); len(data) > 0; at.Item++ {
		op, rest, err := journal.NextSendOp(data)
		if err != nil {
			panic(err)
		}
		data = rest
		p.send(r.Entity, &op, at)
	}
	return nil
}

func (p *post) receive(e sharding.EntityID, s *journal.SendSource) error {
	k := pair{sharding.EntityID{Type: string(s.Type), ID: string(s.ID)}, e}
	if s.After != p.received[k] || s.Number != s.After+1 {
		return fmt.Errorf("send %d after %d", s.Number, p.received[k])
	}
	p.received[k]++
	return nil
}

func (p *post) send(from sharding.EntityID, op *journal.SendOp, at journal.ItemID) {
	k := pair{from, sharding.EntityID{Type: string(op.Type), ID: string(op.ID)}}
	p.last[k]++
	s := journal.Send{ID: at, Source: k.from, Destination: k.to, Number: p.last[k], Command: string(op.Command),
		OnReply: string(op.OnReply), OnReject: string(op.OnReject), Payload: bytes.Clone(op.Payload)}
	p.outbox = append(p.outbox, s)
	p.all[k] = append(p.all[k][:len(p.all[k]):len(p.all[k])], s)
}

func (p *post) steps(body []byte) error {
	for n := uint32(0); len(body) > 0; n++ {
		s, rest, err := journal.NextPost(body)
		if err != nil {
			panic(err)
		}
		body = rest
		at := journal.ItemID{Index: p.index, Ordinal: n}
		switch s.Kind {
		case journal.PostAcknowledged:
			p.outbox = slices.DeleteFunc(p.outbox, func(o journal.Send) bool { return o.ID == s.ID })
		case journal.PostDiscarded:
			p.letters = slices.DeleteFunc(p.letters, func(l journal.Letter) bool { return l.ID == s.ID })
		default:
			e := sharding.EntityID{Type: string(s.Type), ID: string(s.Entity)}
			if err := p.receive(e, &s.Source); err != nil {
				return err
			}
			if len(s.OnReject) > 0 {
				p.send(e, &journal.SendOp{Type: s.Source.Type, ID: s.Source.ID, Command: s.OnReject, Payload: s.Answer}, at)
			} else {
				p.letters = append(p.letters, journal.Letter{ID: at, Destination: e, Number: s.Source.Number})
			}
		}
	}
	return nil
}

// checkDelivery holds the record of a send against what was sent.
func (w *world) checkDelivery(r *journal.Record) {
	data := r.Section(journal.SectionSource)
	if data == nil || data[0] != journal.SourceEntity {
		return
	}
	src, _ := journal.DecodeSendSource(data)
	from := sharding.EntityID{Type: string(src.Type), ID: string(src.ID)}
	s := w.post.all[pair{from, r.Entity}][src.Number-1]
	sends := 0
	for data := r.Section(journal.SectionSends); len(data) > 0; sends++ {
		op, rest, _ := journal.NextSendOp(data)
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
	case r.CommandID != SendCommand(from, src.Number):
		w.problem("send %d of %s to %s has the command id %s", src.Number, from, r.Entity, r.CommandID)
	case events != want || s.OnReply == "" && refused != isRefusal || s.OnReply != "" && (refused || sends == 0):
		w.problem("send %d of %s to %s, %q answered %q, left %d events, %d sends, refusal %v", src.Number, from, r.Entity, s.Command, s.OnReply, events, sends, refused)
	case want > 0 && !w.durable && !strings.HasSuffix(s.Command, "heard") && string(r.Events[0].Payload) != string(s.Payload):
		w.problem("send %d of %s to %s had %q, the record %q", src.Number, from, r.Entity, s.Payload, r.Events[0].Payload)
	}
	if strings.HasSuffix(s.Command, "heard") {
		w.post.answers++
	}
	if refused || isRefusal {
		w.post.refusals++
	}
}

// postman is a delivery under way.
type postman struct {
	w *world
	s journal.Send
}

// mail delivers a send that is in the outbox, often the first, seldom one whose
// turn has not come or that was delivered before; or acknowledges some.
func (w *world) mail() {
	p := &w.post
	if len(p.arrived) > 0 && w.rnd.IntN(3) == 0 {
		r := &Request{Kind: Acknowledge, Shard: worldShard, Delivery: &Delivery{Arrived: p.arrived}, Done: &acknowledger{w: w}}
		p.arrived = nil
		w.core.submit(w.now, []*Request{r})
		return
	}
	if len(p.letters) > 0 && w.rnd.IntN(10) == 0 {
		l := p.letters[w.rnd.IntN(len(p.letters))]
		r := &Request{Kind: Redeliver, Shard: worldShard, Entity: l.Destination, Name: "add", Payload: []byte("5"), ID: "letter",
			ExpectedSequence: NoExpectation, Delivery: &Delivery{Letter: l.ID, Source: l.Destination}, Done: &acknowledger{w: w}}
		if w.rnd.IntN(2) == 0 {
			r.Kind = Discard
		}
		w.core.submit(w.now, []*Request{r})
		return
	}
	if len(p.outbox) == 0 || p.under > 20 {
		return
	}
	s := p.outbox[w.rnd.IntN(min(len(p.outbox), 1+w.rnd.IntN(4)))]
	if w.rnd.IntN(20) == 0 { // a pump that knows less than others
		s = p.all[pair{s.Source, s.Destination}][w.rnd.Uint64N(s.Number)]
	}
	d := &Delivery{Source: s.Source, Number: s.Number, After: s.Number - 1, OnReply: s.OnReply, OnReject: s.OnReject}
	if p.faults[s.ID] > 2 {
		d.Refuse = &RejectedError{Code: CodeInternal, Message: "it fails"}
	}
	r := &Request{
		Kind: Deliver, Entity: s.Destination, Name: s.Command, Payload: s.Payload, ID: SendCommand(s.Source, s.Number), ServerID: true,
		ExpectedSequence: NoExpectation, Delivery: d, Shard: worldShard, Done: &postman{w, s},
	}
	if w.rnd.IntN(30) == 0 {
		r.Deadline = w.now.Add(time.Millisecond)
	}
	p.under++
	w.core.submit(w.now, []*Request{r})
}

// Complete checks that what is said to have arrived is in the log.
func (m *postman) Complete(r *Request) {
	p, k := &m.w.post, pair{m.s.Source, m.s.Destination}
	p.under--
	var gap *GapError
	var fault *GuestFaultError
	switch err := r.Result.Err; {
	case err == nil:
		if p.received[k] < m.s.Number {
			m.w.problem("send %d of %s to %s arrived; the log has %d of them", m.s.Number, k.from, k.to, p.received[k])
		}
		if p.delivered++; r.Result.Duplicate {
			p.again++
		}
		p.arrived = append(p.arrived, Arrived{m.s.ID, m.s.Source})
	case errors.As(err, &gap):
		if p.gaps++; gap.Wanted > m.s.Number || gap.Wanted == m.s.Number {
			m.w.problem("send %d is not carried out for want of %d", m.s.Number, gap.Wanted)
		}
	case errors.As(err, &fault):
		p.faults[m.s.ID]++
	case errors.Is(err, ErrOutboxFull):
		p.full++
	}
}

// acknowledger takes an outcome that says nothing.
type acknowledger struct {
	w    *world
	done bool
}

func (a *acknowledger) Complete(r *Request) {
	if a.done {
		a.w.problem("a request was completed twice")
	}
	a.done = true
	if r.Kind == Redeliver && r.Result.Err == nil {
		a.w.post.dead++
	}
	if r.Kind == Acknowledge && r.Result.Err != nil { // it is told again
		a.w.post.arrived = append(a.w.post.arrived, r.Delivery.Arrived...)
	}
}

// checkSends holds what is left at the end against the log.
func (w *world) checkSends() {
	for k, n := range w.post.last {
		if w.post.received[k] != n {
			w.problem("%s has sent %d to %s, which has %d", k.from, n, k.to, w.post.received[k])
		}
	}
	if n := len(w.post.outbox); n > 0 {
		w.problem("%d sends are left", n)
	}
	for _, e := range w.core.shard(worldShard).entities.all() {
		if e.phase == resident && e.outbox() != 0 {
			w.problem("%s counts %d sends on their way", e.id, e.outbox())
		}
	}
	if m := w.core.shard(worldShard).mail; m != (mail{}) {
		w.problem("the lane counts %+v in flight", m)
	}
}

// mailLeft reports that sends are on their way.
func (w *world) mailLeft() bool {
	return len(w.post.outbox) > 0 || w.post.under > 0 || len(w.post.inquiries) > 0
}
