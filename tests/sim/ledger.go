package sim

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// ledger independently computes the effects of the committed entries of all
// shards on messages and timers. It judges each entry once, when the first node
// applies it. The state machine of every node must come to the same result.
//
// The ledger is the oracle for the invariants I11 and I12. Comparing the nodes
// with each other is not enough, because a fault in the state machine is the
// same on all of them. The ledger therefore uses only the committed entries and
// the rules, and keeps its state in plain maps.
//
// A message gets its fate when an entry of its destination's shard consumes its
// number, or when its source's shard abandons it. decide fails the run if a
// message that was never sent gets a fate, or if a message gets two fates. A
// message is always sent before its fate is decided, although their entries are
// in different shards: the dispatcher delivers only messages of entries that a
// node has applied, and the ledger has judged these by then. Nodes that apply
// an entry later, or again after a crash, get the stored result.
type ledger struct {
	w      *World
	shards map[sharding.ShardID]*account
	fates  map[sendName]*fate
}

// account is the ledger's state of one shard.
type account struct {
	verdicts    []error // apply result of the entry at each index
	counts      map[route]journal.ChannelCounters
	received    map[route]uint64
	outbox      map[journal.ItemID]sendName
	deadLetters map[journal.ItemID]sendName
	timers      map[timerName]int64 // due times of the timers that are set
	// asking counts, by entity, the messages in the outbox that are not
	// answers.
	asking map[sharding.EntityID]int
}

// route is the source and the destination of a message.
type route struct{ from, to sharding.EntityID }

// sendName identifies a message permanently.
type sendName struct {
	route
	number uint64
}

func (n sendName) String() string { return fmt.Sprintf("%s>%s>%d", n.from.ID, n.to.ID, n.number) }

// fate is the outcome of a message.
type fate struct {
	how     string // outcome; "" until it is decided
	wants   bool   // the sender wants an answer
	answer  bool   // the message is an answer
	answers int    // number of answers that were sent
	token   string // token of the message; empty for none
}

func newLedger(w *World) *ledger {
	l := &ledger{w: w, shards: map[sharding.ShardID]*account{}, fates: map[sendName]*fate{}}
	for _, s := range w.shards {
		l.shards[s] = &account{
			counts: map[route]journal.ChannelCounters{}, received: map[route]uint64{}, outbox: map[journal.ItemID]sendName{},
			deadLetters: map[journal.ItemID]sendName{}, asking: map[sharding.EntityID]int{}, timers: map[timerName]int64{},
		}
	}
	return l
}

var errTurn = errors.New("a send is not the next of its source, or a timer is not set")

// judge returns the apply result of an entry: the given error if it is not nil,
// or otherwise the error of its messages and timers.
func (l *ledger) judge(shard sharding.ShardID, c journal.Committed, kind journal.EntryKind, body []byte, records []journal.Record, err error) error {
	a := l.shards[shard]
	if int(c.Index) <= len(a.verdicts) {
		return a.verdicts[c.Index-1]
	}
	switch {
	case err != nil || len(c.Data) == 0:
	case kind == journal.EntryOutbox:
		err = l.outboxOps(a, c.Index, body)
	case kind == journal.EntrySnapshot:
	default:
		err = l.records(a, c.Index, records)
	}
	for len(a.verdicts) < int(c.Index)-1 { // fill in the results of entries that no executor proposed
		a.verdicts = append(a.verdicts, nil)
	}
	a.verdicts = append(a.verdicts, err)
	return err
}

// sender returns the message that caused a record, if there is one.
func sender(r *journal.Record) (source journal.MessageSource, k route, ok bool, err error) {
	data := r.Section(journal.SectionSource)
	if data == nil || data[0] != journal.SourceEntity {
		return source, k, false, nil
	}
	source, err = journal.DecodeMessageSource(data)
	return source, route{sharding.EntityID{Type: string(source.Type), ID: string(source.ID)}, r.Entity}, true, err
}

func (l *ledger) records(a *account, index uint64, records []journal.Record) error {
	for i := range records {
		source, k, sent, err := sender(&records[i])
		if err == nil && sent && !source.InTurn(a.received[k]) {
			err = errTurn
		}
		if t, rings, terr := ringer(&records[i]); err == nil && rings {
			if due, set := a.timers[timerName{records[i].Entity, string(t.Name)}]; terr != nil || !set || due != t.Due {
				err = errTurn
			}
		}
		if err != nil {
			return err
		}
	}
	for i := range records {
		r := &records[i]
		l.rings(a, r)
		source, k, sent, _ := sender(r)
		if sent {
			how := "carried out"
			if len(r.Events) == 0 {
				how = "refused"
			}
			if r.Section(journal.SectionRefusal) != nil {
				how = "dead"
				a.deadLetters[journal.ItemID{Index: index, Ordinal: uint32(i)}] = sendName{k, source.Number}
			}
			a.received[k] = source.Number
			l.decide(sendName{k, source.Number}, how)
		}
		l.made(a, r, journal.ItemID{Index: index, Ordinal: uint32(i)}, sent)
	}
	return nil
}

// made adds the messages that a record sends to the outbox.
func (l *ledger) made(a *account, r *journal.Record, id journal.ItemID, sent bool) {
	asked := false
	tokens := journal.Tokens(r.Section(journal.SectionTokens))
	for ops := r.Section(journal.SectionMessages); len(ops) > 0; id.Item++ {
		op, rest, err := journal.NextMessageOp(ops)
		if err == nil {
			op.Token, err = tokens.Next(id.Item)
		}
		if err != nil {
			l.w.fail("a send cannot be read: %v", err)
			return
		}
		ops = rest
		asked = !l.add(a, r.Entity, &op, id).answer || asked
	}
	most := l.w.messages.entitySends
	if sent {
		most *= 2
	}
	if asked && a.asking[r.Entity] > most {
		l.w.fail("I11: %s has %d sends on their way, the bound is %d", r.Entity, a.asking[r.Entity], most)
	}
}

// add puts a message into the outbox. The payload of an answer names the
// message that it answers.
func (l *ledger) add(a *account, from sharding.EntityID, op *journal.MessageOp, id journal.ItemID) *fate {
	k := route{from, sharding.EntityID{Type: string(op.Type), ID: string(op.ID)}}
	c := a.counts[k]
	c.Last++
	a.counts[k] = c
	name := sendName{k, c.Last}
	f := &fate{wants: op.WantsAnswer(), token: string(op.Token), answer: strings.HasPrefix(string(op.Command), "got-")}
	l.fates[name], a.outbox[id] = f, name
	if !f.answer {
		a.asking[from]++
		return f
	}
	of := l.answered(k, string(op.Payload))
	switch asked := l.fates[of]; {
	case asked == nil || !asked.wants:
		l.w.fail("I11: %s answers %s, which asked nothing", name, of)
	case asked.answers > 0:
		l.w.fail("I11: %s is answered again", of)
	case asked.token != f.token:
		l.w.fail("I11: %s has the token %q, its outcome %s has %q", of, asked.token, name, f.token)
	default:
		asked.answers++
	}
	return f
}

// answered returns the message to which an answer belongs. That message went in
// the opposite direction.
func (l *ledger) answered(k route, of string) (n sendName) {
	var typ, id string
	if _, err := fmt.Sscanf(of, "%s %s %d", &typ, &id, &n.number); err != nil {
		l.w.fail("an answer says %q: %v", of, err)
	}
	n.route = route{k.to, sharding.EntityID{Type: typ, ID: id}}
	return n
}

// answerTo returns the payload of an answer.
func answerTo(to sharding.EntityID, number uint64) []byte {
	return fmt.Appendf(nil, "%s %s %d", to.Type, to.ID, number)
}

func (l *ledger) decide(n sendName, how string) {
	switch f := l.fates[n]; {
	case f == nil:
		l.w.fail("I11: %s was never sent and is %s", n, how)
	case f.how != "":
		l.w.fail("I11: %s was %s and is %s", n, f.how, how)
	default:
		f.how = how
		l.w.note("send %s %s", n, how)
	}
}

// remove removes a message from the outbox.
func (l *ledger) remove(a *account, id journal.ItemID) (n sendName, there bool) {
	if n, there = a.outbox[id]; there {
		delete(a.outbox, id)
		if !l.fates[n].answer {
			a.asking[n.from]--
		}
	}
	return n, there
}

// outboxOps applies an entry of outbox operations. An operation that consumes a
// message number is alone in its entry.
func (l *ledger) outboxOps(a *account, index uint64, body []byte) error {
	for at := uint32(0); len(body) > 0; at++ {
		p, rest, err := journal.NextOutboxOp(body)
		if err != nil {
			return err
		}
		body = rest
		id := journal.ItemID{Index: index, Ordinal: at}
		switch p.Kind {
		case journal.OutboxAcknowledged:
			if n, there := l.remove(a, p.ID); there && l.fates[n].how == "" {
				l.w.fail("I11: %s is acknowledged and has not arrived", n)
			}
		case journal.OutboxGivenUp:
			l.giveUp(a, &p, id)
		case journal.OutboxRefused, journal.OutboxRefusedToken:
			k := route{sharding.EntityID{Type: string(p.Source.Type), ID: string(p.Source.ID)}, sharding.EntityID{Type: string(p.Type), ID: string(p.Entity)}}
			if !p.Source.InTurn(a.received[k]) {
				return errTurn
			}
			n := sendName{k, p.Source.Number}
			a.received[k] = n.number
			if len(p.OnReject) > 0 {
				l.decide(n, "refused")
				l.add(a, k.to, &journal.MessageOp{Type: p.Source.Type, ID: p.Source.ID, Command: p.OnReject, Payload: p.Answer, Token: p.Token}, id)
			} else {
				l.decide(n, "dead")
				a.deadLetters[id] = n
			}
		case journal.OutboxDiscarded:
			delete(a.deadLetters, p.ID)
		}
	}
	return nil
}

// giveUp ends a message to an entity type that does not exist. The source
// receives the rejection from its own shard.
func (l *ledger) giveUp(a *account, p *journal.OutboxOp, id journal.ItemID) {
	n, there := l.remove(a, p.ID)
	if !there {
		return
	}
	c := a.counts[n.route]
	c.GiveUp(n.number)
	a.counts[n.route] = c
	if !l.fates[n].wants {
		l.decide(n, "dead")
		a.deadLetters[id] = n
		return
	}
	l.decide(n, "given up")
	l.fates[n].answers++
	k := route{n.from, n.from}
	c = a.counts[k]
	c.Last++
	a.counts[k] = c
	answer := sendName{k, c.Last}
	l.fates[answer], a.outbox[id] = &fate{answer: true}, answer
}

// set returns the number of timers that are set.
func (l *ledger) set() (n int) {
	for _, a := range l.shards {
		n += len(a.timers)
	}
	return n
}

// waiting returns the number of messages in the outboxes.
func (l *ledger) waiting() (n int) {
	for _, a := range l.shards {
		n += len(a.outbox)
	}
	return n
}
