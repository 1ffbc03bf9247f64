package entity

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// flood submits n deliveries to one entity and returns their outcomes.
func (w *world) flood(n int) (got []*asked) {
	var reqs []*request.Request
	for i := range n {
		a := &asked{}
		got = append(got, a)
		from := sharding.EntityID{Type: "tally", ID: fmt.Sprintf("from-%d", i)}
		k := pair{from, sharding.EntityID{Type: "tally", ID: "x"}}
		w.messages.all[k] = []journal.Message{{Source: k.from, Destination: k.to, Number: 1, Command: "note", Payload: []byte("1")}}
		reqs = append(reqs, &request.Request{
			Kind: request.Deliver, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "note", Payload: []byte("1"), ID: request.SendCommand(from, 1), ServerID: true,
			Shard: worldShard, ExpectedSequence: request.NoExpectation, Delivery: &request.Delivery{Source: from, Number: 1}, Done: a,
		})
	}
	w.core.submit(w.now, reqs)
	return got
}

// TestDeliveriesYieldToCallers checks that while there are callers few
// deliveries are admitted, and fewer if commits take longer, and that many are
// admitted without callers. The waiting deliveries are bounded, and leave half
// of the shard's requests to callers.
func TestDeliveriesYieldToCallers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		caller bool
		commit time.Duration
		want   int
	}{
		{"alone", false, time.Second, 1024}, {"beside", true, timers.Slow, 256}, {"beside and slow", true, timers.Slow + 1, 32},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := quiet(t)
			w.now = w.now.Add(time.Hour)
			w.core.timers.NoteCommit(int64(tt.commit))
			if tt.caller {
				w.core.submit(w.now, []*request.Request{{Kind: request.Inspect, Entity: sharding.EntityID{Type: "tally", ID: "y"}, Shard: worldShard, Done: &asked{}},
					{Kind: request.Query, Name: "sum", Entity: sharding.EntityID{Type: "tally", ID: "y"}, Shard: worldShard, Done: &asked{}}})
			}
			got := w.flood(1024)
			if busy := w.flood(1); busy[0].got == nil || !errors.Is(busy[0].got.Err, request.ErrBusy) {
				t.Errorf("one more than may wait: %+v", busy[0].got)
			}
			w.core.runTurns()
			if n := w.core.intake.AdmittedCount(); n != tt.want {
				t.Errorf("%d are admitted, want %d", n, tt.want)
			}
			w.core.stepDown(w.core.shard(worldShard))
			for i, a := range got {
				if a.got == nil {
					t.Fatalf("delivery %d is never answered", i)
				}
			}
			if in := w.core.intake; in.AdmittedCount() != 0 || in.Waiting() != 0 || w.core.owed != 0 {
				t.Errorf("%d are admitted, %d wait, %d requests are owed after a step-down", in.AdmittedCount(), in.Waiting(), w.core.owed)
			}
		})
	}
}

// TestDeliveriesOverRateWait checks that deliveries beyond their type's rate
// wait until the rate allows them or their deadline passes.
func TestDeliveriesOverRateWait(t *testing.T) {
	w := quiet(t)
	w.now = w.now.Add(time.Hour)
	w.typ.Rate = NewRate(10)
	got := w.flood(30)
	step := func(d time.Duration) (done int) {
		w.now = w.now.Add(d)
		w.core.now = w.now
		for range 200 {
			w.core.runTurns()
			w.core.endTurn()
			w.chunk()
			w.commit()
			w.reply()
		}
		for _, a := range got {
			if a.got != nil {
				done++
			}
		}
		return done
	}
	if n := step(0); n != 10 {
		t.Errorf("%d of 30 deliveries were executed at once, want those of one second", n)
	}
	if n := step(time.Second); n != 20 {
		t.Errorf("%d were a second later", n)
	}
	if n := step(time.Second); n != 30 {
		t.Errorf("%d were two seconds later", n)
	}
}

// testSettings are the settings of all types.
type testSettings struct {
	defaultSettings
	suspended bool
	idle      time.Duration // the idle time of all types; 0 if it is not set
	retention RetentionOverride
}

func (s *testSettings) IsSuspended(string) bool                    { return s.suspended }
func (s *testSettings) IdleAfter(string) (time.Duration, bool)     { return s.idle, s.idle != 0 }
func (s *testSettings) RetentionOverride(string) RetentionOverride { return s.retention }

// TestSuspendedTypeReturnsDeliveries checks that a delivery to a suspended type goes
// back to its sender, whether the type was suspended before the delivery
// arrived or while it waited.
func TestSuspendedTypeReturnsDeliveries(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		t.Run(fmt.Sprint("waiting ", waiting), func(t *testing.T) {
			w := quiet(t)
			set := &testSettings{suspended: !waiting}
			w.core.opts.Settings = set
			got := w.flood(1)
			set.suspended = true
			for range 50 {
				w.core.runTurns()
				w.core.endTurn()
				w.chunk()
				w.commit()
				w.reply()
			}
			if got[0].got == nil || !errors.Is(got[0].got.Err, request.ErrSuspended) {
				t.Errorf("the delivery: %+v", got[0].got)
			}
			if len(w.log) != 0 {
				t.Errorf("%d records", len(w.log))
			}
		})
	}
}

// nodeOutbox counts the messages of a node, and names a sender that does not
// accept its outcomes.
type nodeOutbox struct {
	messages, bytes int
	stuck           sharding.EntityID
}

func (o *nodeOutbox) HasStuckOutcomes(_ sharding.ShardID, sender sharding.EntityID) bool {
	return sender == o.stuck
}

// TestMessagesOfSendersWithStuckOutcomesWait checks that a message that wants
// an outcome is not executed while its sender does not accept outcomes.
// Messages of that sender that want no outcome are executed, and so are
// messages of other senders.
func TestMessagesOfSendersWithStuckOutcomesWait(t *testing.T) {
	for _, refuse := range []*request.RejectedError{nil, {Code: "denied", Message: "by the dispatcher"}} {
		w := quiet(t)
		stuck := sharding.EntityID{Type: "tally", ID: "stuck"}
		w.core.opts.Outbox = &nodeOutbox{stuck: stuck}
		for _, c := range []struct {
			from, reply string
			waits       bool
		}{{"stuck", "answered", true}, {"stuck", "", false}, {"free", "answered", false}} {
			records, to := len(w.log), sharding.EntityID{Type: "tally", ID: "to-" + c.from + c.reply}
			from := sharding.EntityID{Type: "tally", ID: c.from}
			w.messages.all[pair{from, to}] = []journal.Message{{Source: from, Destination: to, Number: 1, Command: "add", Payload: []byte("1"), OnReply: c.reply, OnReject: c.reply}}
			res := w.submit(&request.Request{
				Kind: request.Deliver, Entity: to, Name: "add", Payload: []byte("1"), ID: request.SendCommand(from, 1), ServerID: true,
				Delivery: &request.Delivery{Source: from, Number: 1, OnReply: c.reply, OnReject: c.reply, Refuse: refuse},
			})
			if errors.Is(res.Err, request.ErrOutboxFull) != c.waits || c.waits == (res.Err == nil) || refuse == nil && c.waits == (len(w.log) > records) {
				t.Errorf("rejected before: %v; from %q, reply %q: %v, %d records more", refuse != nil, c.from, c.reply, res.Err, len(w.log)-records)
			}
		}
	}
}

func (o *nodeOutbox) Totals() (messages, bytes int) { return o.messages, o.bytes }

// TestNodeOutboxIsBounded tests the limits for the number and the bytes of a
// node's messages: below, at and above each limit. Commands without messages
// are not affected.
func TestNodeOutboxIsBounded(t *testing.T) {
	w := quiet(t)
	w.core.opts.EntitySends, w.core.opts.ShardSends, w.core.opts.NodeSends, w.core.opts.NodeSendBytes = 100, 100, 10, 10_000
	sent := &nodeOutbox{}
	w.core.opts.Outbox = sent
	for i, tt := range []struct {
		messages, bytes int
		ok              bool
	}{{6, 0, true}, {7, 0, true}, {10, 0, false}, {0, 9_000, true}, {0, 9_990, false}} {
		sent.messages, sent.bytes = tt.messages, tt.bytes
		if res := w.ask(request.Command, "send", fmt.Sprint(i)); errors.Is(res.Err, request.ErrOutboxFull) == tt.ok {
			t.Errorf("with %d sends of %d bytes: %v", tt.messages, tt.bytes, res.Err)
		}
		if res := w.ask(request.Command, "note", fmt.Sprint("n", i)); res.Err != nil {
			t.Errorf("a command without sends: %v", res.Err)
		}
	}
}
