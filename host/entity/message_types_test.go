package entity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// settleDown runs the world until there is no work left.
func (w *world) settleDown() {
	for range 200 {
		w.found()
		w.core.runTurns()
		w.core.endTurn()
		w.chunk()
		w.commit()
		w.reply()
		w.now = w.now.Add(time.Second)
		w.core.now = w.now
	}
}

// TestSendToUnlistedTypeFails checks that a command that sends to a type
// which its manifest does not list fails and writes nothing, whether a client,
// a timer or another entity sent it.
func TestSendToUnlistedTypeFails(t *testing.T) {
	w := quiet(t)
	w.typ.MessagesTo = []string{"other-*"}
	w.core.opts.ClusterVersion = maxLevel
	// The destination may come from the caller's input, so it never counts as a
	// fault of the entity.
	for i := range 4 {
		res := w.ask(request.Command, "send", fmt.Sprint("a", i))
		if !errors.Is(res.Err, request.ErrOutputValue) || !strings.Contains(res.Err.Error(), "sends to entity type tally, which its manifest does not list") || len(w.log) != 0 || len(w.messages.outbox) != 0 {
			t.Errorf("a client's: %v, %d records, %d sends", res.Err, len(w.log), len(w.messages.outbox))
		}
	}
	if info := w.ask(request.Inspect, "", "").Info; info.Faults != 0 || w.core.stats.Faults != 0 || w.core.stats.Quarantines != 0 {
		t.Errorf("%+v, %d faults", info, w.core.stats.Faults)
	}

	r := &request.Request{Kind: request.Deliver, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "send", Payload: []byte("1"), ServerID: true, Shard: worldShard,
		ExpectedSequence: request.NoExpectation, Delivery: &request.Delivery{Source: sharding.EntityID{Type: "any", ID: "a"}, Number: 1}}
	sent := pair{r.Delivery.Source, r.Entity}
	w.messages.all[sent] = append(w.messages.all[sent], journal.Message{Source: r.Delivery.Source, Destination: r.Entity, Number: 1, Command: r.Name, Payload: r.Payload})
	got := &asked{}
	r.ID, r.Done = request.SendCommand(r.Delivery.Source, 1), got
	w.core.submit(w.now, []*request.Request{r})
	w.settleDown()
	if got.got.Err != nil || len(w.messages.outbox) != 0 || w.core.stats.Refused != 1 || len(w.log) != 1 {
		t.Errorf("a delivery's: %+v, %d sends, %d refused", got.got, len(w.messages.outbox), w.core.stats.Refused)
	}

	w.typ.MessagesTo = []string{"tal*"}
	if res := w.ask(request.Command, "send", "b"); res.Err != nil || len(w.messages.outbox) == 0 {
		t.Errorf("to a type that it names: %+v, %d sends", res, len(w.messages.outbox))
	}
}

// TestTimerSendToUnlistedTypeFails checks that a timer's command that sends to
// a type which its manifest does not list fails and writes nothing.
func TestTimerSendToUnlistedTypeFails(t *testing.T) {
	w := quiet(t)
	w.typ.MessagesTo = []string{}
	w.core.opts.ClusterVersion = maxLevel
	w.alarm = &abi.Timer{Name: []byte("later"), Due: 1, Command: []byte("send"), Payload: []byte("1")}
	if res := w.ask(request.Command, "alarm", "a"); res.Err != nil {
		t.Fatal(res.Err)
	}
	records := len(w.log)
	w.settleDown()
	if bad := w.core.stats.BadOutputs; bad == 0 || w.core.stats.Faults != 0 || len(w.log) != records || len(w.messages.outbox) != 0 || len(w.timers) != 1 {
		t.Errorf("%d bad outputs, %d faults, %d records, %d sends, %d timers", bad, w.core.stats.Faults, len(w.log)-records, len(w.messages.outbox), len(w.timers))
	}
}

// TestUnacceptedMessageIsRejected checks that a message that the type does
// not accept is rejected without a guest call. The message uses up its
// number. It becomes a dead letter, or its source gets the rejection. An
// entity accepts its own messages.
func TestUnacceptedMessageIsRejected(t *testing.T) {
	w := quiet(t)
	w.typ.MessagesFrom = []string{"friend", "tally-*"}
	calls := 0
	open := w.typ.Instantiate
	w.typ.Instantiate = func(ctx context.Context) (Guest, error) {
		g, err := open(ctx)
		return counting{g, &calls}, err
	}
	deliver := func(number uint64, sourceType, id, onReject string) *asked {
		from, to := sharding.EntityID{Type: sourceType, ID: id}, sharding.EntityID{Type: "tally", ID: "x"}
		k := pair{from, to}
		w.messages.all[k] = append(w.messages.all[k], journal.Message{Source: from, Destination: to, Number: number, Command: "note", OnReply: onReject, OnReject: onReject, Payload: []byte("1")})
		a := &asked{}
		w.core.submit(w.now, []*request.Request{{
			Kind: request.Deliver, Entity: to, Name: "note", Payload: []byte("1"), ID: request.SendCommand(from, number), ServerID: true, Shard: worldShard,
			ExpectedSequence: request.NoExpectation, Delivery: &request.Delivery{Source: from, Number: number, After: number - 1, OnReply: onReject, OnReject: onReject}, Done: a,
		}})
		w.settleDown()
		return a
	}
	for i, tt := range []struct {
		sourceType, id, onReject string
		number                   uint64
		handled                  int
	}{
		{"tally", "other", "", 1, 0}, {"stranger", "s", "", 1, 0}, {"stranger", "s", "", 2, 0}, {"friend", "f", "", 1, 1}, {"tally-1", "f", "", 1, 1}, {"tally", "x", "", 1, 1},
	} {
		calls = 0
		before := len(w.messages.deadLetters)
		a := deliver(tt.number, tt.sourceType, tt.id, tt.onReject)
		if a.got == nil || a.got.Err != nil || calls != tt.handled || len(w.messages.deadLetters) != before+1-tt.handled {
			t.Errorf("%d, of %s: %+v, %d calls, %d dead letters more", i, tt.sourceType, a.got, calls, len(w.messages.deadLetters)-before)
		}
	}
	if refused := w.core.stats.Refused; refused != 3 {
		t.Errorf("%d were refused", refused)
	}
	last := w.log[1].Section(journal.SectionRefusal)
	if why, err := journal.DecodeRefusal(last); err != nil || string(why.Code) != request.CodeNotAccepted {
		t.Errorf("the dead letter says %+v, %v", why, err)
	}
	if a := deliver(3, "stranger", "s", "unheard"); a.got.Err != nil || len(w.messages.outbox) != 1 || w.messages.outbox[0].Command != "unheard" || !strings.Contains(string(w.messages.outbox[0].Payload), `"code":"not_accepted"`) {
		t.Errorf("the answer: %+v, %+v", a.got, w.messages.outbox)
	}

	deadLetter := w.messages.deadLetters[1]
	redelivered := &asked{}
	w.core.submit(w.now, []*request.Request{{Kind: request.Redeliver, Shard: worldShard, Entity: deadLetter.Destination, Name: "note", Payload: []byte("1"), ID: "letter",
		ExpectedSequence: request.NoExpectation, Delivery: &request.Delivery{DeadLetter: deadLetter.ID, Source: sharding.EntityID{Type: "stranger", ID: "s"}}, Done: redelivered}})
	w.settleDown()
	if !errors.Is(redelivered.got.Err, request.ErrNotAccepted) {
		t.Errorf("a dead letter that is delivered again: %+v", redelivered.got)
	}
}

// TestMessagesFromOtherOwnersAreRejected checks that a type whose manifest
// lists no types accepts no messages from types of other owners. An answer
// that an entity has asked for always reaches the entity, and the record of
// the answer names the message that it answers.
func TestMessagesFromOtherOwnersAreRejected(t *testing.T) {
	w := quiet(t)
	w.core.opts.ClusterVersion = func() sharding.ClusterVersion { return sharding.VersionMessageReplies }
	w.typ.Owners = strangers{}
	deliver := func(source string, number uint64, onReply string, answer bool) *asked {
		from, to := sharding.EntityID{Type: source, ID: "s"}, sharding.EntityID{Type: "tally", ID: "x"}
		k := pair{from, to}
		w.messages.all[k] = append(w.messages.all[k], journal.Message{Source: from, Destination: to, Number: number, Command: "note", OnReply: onReply, OnReject: onReply, Payload: []byte("1")})
		a := &asked{}
		w.core.submit(w.now, []*request.Request{{
			Kind: request.Deliver, Entity: to, Name: "note", Payload: []byte("1"), ID: request.SendCommand(from, number), ServerID: true, Shard: worldShard, ExpectedSequence: request.NoExpectation,
			Delivery: &request.Delivery{Source: from, Number: number, After: number - 1, OnReply: onReply, OnReject: onReply, Answer: answer}, Done: a,
		}})
		w.settleDown()
		if a.got == nil || a.got.Err != nil {
			t.Fatalf("message %d of %s: %+v", number, source, a.got)
		}
		return a
	}
	answers := func(i int) bool {
		s, err := journal.DecodeMessageSource(w.log[i].Section(journal.SectionSource))
		if err != nil {
			t.Fatal(err)
		}
		return s.Answers
	}
	deliver("friend", 1, "", false)
	deliver("stranger", 1, "", false)
	if n := len(w.messages.deadLetters); n != 1 {
		t.Errorf("%d dead letters, want that of the stranger", n)
	}
	deliver("stranger", 2, "", true)
	if n := len(w.messages.deadLetters); n != 1 {
		t.Errorf("the outcome that the entity waits for became a dead letter")
	}
	deliver("stranger", 3, "heard", false)
	deliver("friend", 2, "heard", false)
	if got := []bool{answers(0), answers(1), answers(2), answers(3), answers(4)}; !slices.Equal(got, []bool{false, false, false, true, true}) {
		t.Errorf("records that answer: %v", got)
	}
	w.typ.MessagesFrom = []string{"stranger"}
	deliver("stranger", 4, "", false)
	if n := len(w.messages.deadLetters); n != 1 {
		t.Errorf("%d dead letters although the manifest names the stranger", n)
	}
}

// counting is a guest that counts its commands.
type counting struct {
	Guest
	handled *int
}

func (c counting) Handle(handle uint64, frames []byte, env Env) ([]byte, error) {
	*c.handled++
	return c.Guest.Handle(handle, frames, env)
}

// strangers are the types of another owner.
type strangers struct{}

func (strangers) IsForeign(name string) bool { return name == "stranger" }
