package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/testkit"
)

// reporter receives the faults that a check finds. A test implements it.
type reporter interface {
	Errorf(format string, args ...any)
}

// kept is the data of an entity in a journal, with the violations of rules
// found in it.
type kept struct {
	first    uint64 // sequence of the first event
	events   []told
	at       map[string]uint64   // last sequence of each client's command
	taken    map[string][]string // received tokens by source, in order
	answered []string
	armed    map[string]armed // timers that are set, by name
	set      int              // number of timers set
	rang     int
	faults   []string
}

func newKept() *kept {
	return &kept{first: 1, at: map[string]uint64{}, taken: map[string][]string{}, armed: map[string]armed{}}
}

type armed struct {
	token string
	due   int64
}

// chaosEvent is the part of a guest's event that the rules use.
type chaosEvent struct {
	Timer, Token, Cancel, From, Name string
	Due                              int64
}

// isChaos reports whether a type is one of the two types whose journals are
// read.
func isChaos(entityType string) bool { return entityType == "whole" || entityType == "brief" }

// readKept reads all entities of these types from the data of a node that was
// stopped gracefully.
func readKept(t *testing.T, dir string) map[dest]*kept {
	t.Helper()
	out := map[dest]*kept{}
	eachJournal(t, dir, func(s *shardJournal) {
		for id, head := range s.heads {
			if !isChaos(id.Type) {
				continue
			}
			k := newKept()
			if head.Cut != nil {
				k.first = uint64(head.Cut.Sequence) + 1
			}
			out[dest{id.Type, id.ID}] = k
		}
		var rec journal.Record
		if err := s.records(func(id sharding.EntityID, _ journal.Position, raw []byte) error {
			err := rec.Decode(raw)
			if err == nil && isChaos(id.Type) {
				err = out[dest{id.Type, id.ID}].record(&rec)
			}
			return err
		}); err != nil {
			t.Fatalf("read shard %d in %s: %v", s.shard, dir, err)
		}
	})
	return out
}

func (k *kept) record(rec *journal.Record) error {
	if !rec.Internal() && len(rec.Events) > 0 {
		k.at[string(rec.CommandID)] = uint64(rec.Last())
	}
	for i := range rec.Events {
		k.events = append(k.events, storedEvent(rec, i))
		var e chaosEvent
		if rec.Tombstone(i) {
			clear(k.armed)
			continue
		}
		if err := json.Unmarshal(rec.Events[i].Payload, &e); err != nil {
			return err
		}
		k.event(rec, rec.Events[i].Type, &e)
	}
	return nil
}

// event checks the rules of timers for an event, and records the tokens that
// are later compared with the tokens of the other entity. If the first events
// of the entity were truncated, a timer may have been set before.
func (k *kept) event(rec *journal.Record, kind string, e *chaosEvent) {
	switch kind {
	case "acted":
		delete(k.armed, e.Cancel)
		if e.Timer != "" {
			k.armed[e.Timer] = armed{e.Token, e.Due}
			k.set++
		}
	case "rang":
		a, set := k.armed[e.Name]
		switch {
		case !set && k.first > 1:
		case a != armed{e.Token, e.Due}:
			k.faults = append(k.faults, fmt.Sprintf("timer %s fired for %s due %d, it is set for %+v", e.Name, e.Token, e.Due, a))
		case rec.RecordedAt < e.Due || !rec.Internal():
			k.faults = append(k.faults, fmt.Sprintf("timer %s of %s fired at %d, due at %d", e.Name, e.Token, rec.RecordedAt, e.Due))
		}
		delete(k.armed, e.Name)
		k.rang++
	case "taken":
		k.taken[e.From] = append(k.taken[e.From], e.Token)
	case "answered":
		k.answered = append(k.answered, e.Token)
	}
}

// settle determines, from the events that followers received, which commands
// with an unknown outcome were executed.
func (l *chaosLoad) settle(f *streams) {
	for _, a := range l.unknown {
		var found *stream
		for _, s := range f.all {
			if s.of == a.of.Type && (found == nil || s.skipped < found.skipped) {
				found = s
			}
		}
		for _, e := range found.events[a.of.ID] {
			if e.command == a.command.ID {
				a.sequence, a.events = e.sequence, a.events+1
			}
		}
		if a.events > 0 {
			l.acks[a.of] = append(l.acks[a.of], a)
		}
	}
}

// ledger is the state that must exist according to the answers that callers
// received.
type ledger struct {
	acts    map[dest]int
	takes   map[dest]map[string][]string // sent tokens in order, by destination and source
	answers map[dest][]string
	sends   int
}

func (l *chaosLoad) ledger() *ledger {
	b := &ledger{acts: map[dest]int{}, takes: map[dest]map[string][]string{}, answers: map[dest][]string{}}
	for of, acks := range l.acks {
		slices.SortFunc(acks, func(a, b ack) int { return cmp.Compare(a.sequence, b.sequence) })
		for _, a := range acks {
			if a.act == nil {
				continue
			}
			b.acts[of]++
			for i, to := range a.act.Sends {
				d, token := dest{to.Type, to.ID}, fmt.Sprintf("%s#%d", a.command.ID, i)
				if b.takes[d] == nil {
					b.takes[d] = map[string][]string{}
				}
				b.takes[d][of.String()] = append(b.takes[d][of.String()], token)
				b.sends++
				if to.Answer {
					b.answers[of] = append(b.answers[of], token)
				}
			}
		}
	}
	return b
}

// checkKept compares a journal with the answers that callers received: each
// command occurs once and at the acknowledged sequence; each timer's command
// occurs once, or never if the timer was cancelled; each message arrives once
// and in order; and each reply arrives once.
func (l *chaosLoad) checkKept(t reporter, have map[dest]*kept) (timers, sends int) {
	want := l.ledger()
	for d, k := range have {
		for _, fault := range k.faults {
			t.Errorf("%s: %s", d, fault)
		}
		if len(k.armed) > 0 {
			t.Errorf("%s: its timers %v never fired", d, k.armed)
		}
		timers += k.set
		there := map[string]bool{}
		for _, a := range l.acks[d] {
			there[a.command.ID] = true
			if at := k.at[a.command.ID]; a.events > 0 && a.sequence >= k.first && at != a.sequence {
				t.Errorf("%s: command %s was acknowledged at sequence %d, it is at %d", d, a.command.ID, a.sequence, at)
			}
		}
		for id, at := range k.at {
			if !there[id] {
				t.Errorf("%s: sequence %d is of command %s, which nobody was told of", d, at, id)
			}
		}
		if k.first > 1 {
			continue // the remaining events contain no further information
		}
		for from, tokens := range want.takes[d] {
			sends += len(tokens)
			if !slices.Equal(k.taken[from], tokens) {
				t.Errorf("%s took %d sends of %s, in order: %v; sent were %d\n%v\n%v", d, len(k.taken[from]), from,
					slices.Equal(slices.Sorted(slices.Values(tokens)), slices.Sorted(slices.Values(k.taken[from]))), len(tokens), k.taken[from], tokens)
			}
		}
		if len(k.taken) > len(want.takes[d]) {
			t.Errorf("%s took sends of %d entities, %d sent", d, len(k.taken), len(want.takes[d]))
		}
		if !slices.Equal(slices.Sorted(slices.Values(k.answered)), slices.Sorted(slices.Values(want.answers[d]))) {
			t.Errorf("%s got %d answers, %d were due", d, len(k.answered), len(want.answers[d]))
		}
	}
	return timers, sends
}

// mix computes the guest's digest of the received tokens.
func mix(tokens []string) (digest int64) {
	for _, token := range tokens {
		h := uint64(digest)
		for i := range len(token) {
			h = (h ^ uint64(token[i])) * 1099511628211
		}
		digest = int64(h >> 1)
	}
	return digest
}

// checkStates reads every entity's state and checks it against the rules. The
// state of an entity that is never deleted is also compared with the answers to
// callers, even if its events were truncated.
func (l *chaosLoad) checkStates(t *testing.T) map[dest][]byte {
	t.Helper()
	want, out := l.ledger(), map[dest][]byte{}
	for i := range wholes + briefs {
		d, mortal := chaosEntity(i)
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		s, raw, err := readState(ctx, l.every, d)
		cancel()
		if err != nil {
			t.Fatalf("the state of %s: %v", d, err)
		}
		out[d] = raw
		if s.Stray != 0 || len(s.Armed) > 0 || s.Set != s.Rang+s.Ended {
			t.Errorf("%s: of %d timers %d fired, %d ended otherwise, %v are set, %d came astray", d, s.Set, s.Rang, s.Ended, s.Armed, s.Stray)
		}
		if mortal {
			continue
		}
		if s.Acts != int64(want.acts[d]) || s.Awaited != int64(len(want.answers[d])) || s.Answered != s.Awaited {
			t.Errorf("%s: %d acts, %d of %d answers; %d were acknowledged, %d answers are due", d, s.Acts, s.Answered, s.Awaited, want.acts[d], len(want.answers[d]))
		}
		for from, tokens := range want.takes[d] {
			if got := s.Heard[from]; got.Count != int64(len(tokens)) || got.Digest != mix(tokens) {
				t.Errorf("%s heard %d sends of %s, digest %d; sent were %d, digest %d", d, got.Count, from, got.Digest, len(tokens), mix(tokens))
			}
		}
		if len(s.Heard) > len(want.takes[d]) {
			t.Errorf("%s heard %v", d, slices.Collect(maps.Keys(s.Heard)))
		}
	}
	return out
}

// sampled is the sampling rate: one in this many entities is also replayed by
// the interpreter.
const sampled = 4

// checkReplays checks on every replica that replaying each entity's snapshots
// and events gives the state that the entity reported while it ran.
func checkReplays(t *testing.T, w *world, wasm []byte, lived map[dest][]byte) (snapshots int) {
	t.Helper()
	both := []*replayer{newReplayer(t, wasm, guest.Options{}), newReplayer(t, wasm, guest.Options{Interpreter: true})}
	for _, r := range both {
		r.types = map[string]uint32{"whole": 0, "brief": 1}
	}
	for place, n := range w.Nodes() {
		eachHistory(t, n.DataDir(), func(id sharding.EntityID, l *lifetime) {
			if !isChaos(id.Type) {
				return
			}
			snapshots += len(l.snaps)
			replayers := both[:1]
			if number, _ := strconv.Atoi(id.ID); number%sampled == place {
				replayers = both
			}
			for _, r := range replayers {
				if _, answer := r.check(n.ID(), id, l); l.lives && !bytes.Equal(answer, lived[dest{id.Type, id.ID}]) {
					t.Errorf("%v on %s answers %s when it is replayed, %s when it lived", id, n.ID(), answer, lived[dest{id.Type, id.ID}])
				}
			}
		})
	}
	return snapshots
}

// quiet waits until no timer is set and no message is pending. It returns the
// sequence of every entity.
func (w *world) quiet() map[dest]uint64 {
	w.t.Helper()
	var last map[dest]uint64
	w.Await("all timers have fired and all sends have arrived", func() bool {
		now := map[dest]uint64{}
		for i := range wholes + briefs {
			d, _ := chaosEntity(i)
			ctx, cancel := context.WithTimeout(w.t.Context(), testkit.Patience)
			info, err := w.c.Entity(ctx, d.Type, d.ID)
			cancel()
			switch {
			case err != nil && settledCode(err):
				w.t.Fatal(err)
			case err != nil || info.GetPendingMessages() > 0 || len(info.GetTimers()) > 0:
				last = nil
				return false
			}
			now[d] = info.GetSequence()
		}
		same := maps.Equal(now, last) // if a message arrives between two passes, the sequences of the next pass differ
		last = now
		return same
	})
	return last
}

// wasCut reports whether the first events of an entity were truncated.
func wasCut(ctx context.Context, c *client.Client, d dest) bool {
	for _, err := range c.ReadEvents(ctx, client.EventRange{EntityType: d.Type, EntityID: d.ID, From: 1}) {
		_, cut := err.(*client.TruncatedError)
		return cut
	}
	return false
}
