package replay

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/guests"
	"github.com/hostd/hostd/tests/support/testkit"
)

// counted is the entity of these tests: a counter in shard 1.
var counted = sharding.EntityID{Type: "counter", ID: "c-1"}

// shadowWorld is a shadower of the example counter over a log of one shard.
type shadowWorld struct {
	t       *testing.T
	machine *eventlog.Machine
	index   uint64
	chain   journal.Chain
	prev    journal.Hash
	head    journal.Sequence

	s       *shadower
	watches *trial.Watches
	missing error // why the module cannot be loaded
}

// oneShard are executors of a cluster with one shard.
type oneShard struct{ loadFunc }

func (oneShard) ShardOf(sharding.EntityID) sharding.ShardID { return 1 }

// besideFunc returns how a module would serve a type.
type besideFunc func() (*modules.Served, *guest.Module, error)

func (f besideFunc) Beside(context.Context, string, journal.Digest) (*modules.Served, *guest.Module, error) {
	return f()
}

func newShadowWorld(t *testing.T) *shadowWorld {
	t.Helper()
	m := guests.Compile(t, testkit.BuildExample(t, "counter"), nil)
	st, err := store.Open(t.TempDir(), store.Options{MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w := &shadowWorld{t: t, watches: trial.NewWatches()}
	if w.machine, err = eventlog.Open(st, 0, eventlog.Options{ClusterVersion: func() sharding.ClusterVersion { return sharding.Version2 }}); err != nil {
		t.Fatal(err)
	}
	if err := w.machine.SetRecoveryTargets(nil); err != nil {
		t.Fatal(err)
	}
	about, index, ok := m.Manifest().Type(counted.Type)
	if !ok {
		t.Fatal("the example has no counter")
	}
	limits := abi.DefaultLimits()
	served := &modules.Served{
		Type: entity.Type{Name: counted.Type, Index: uint32(index), Digest: m.Digest(), Limits: &limits, TypeRoutes: entity.TypeRoutes{States: about.States()}},
		API:  modules.Type{Encoding: request.JSON},
	}
	w.s = &shadower{
		machine: w.machine, executors: oneShard{idle}, now: time.Now,
		types: besideFunc(func() (*modules.Served, *guest.Module, error) { return served, m, w.missing }),
	}
	t.Cleanup(func() {
		w.s.replayer.close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	w.wish(trial.ShadowSetting{Digest: m.Digest(), Share: sharding.Buckets})
	return w
}

func (w *shadowWorld) wish(wish trial.ShadowSetting) *trial.Watch {
	w.watches.Learn(map[string]trial.ShadowSetting{counted.Type: wish})
	return w.watches.Of(counted.Type)
}

// happens commits an event of the counter.
func (w *shadowWorld) happens(at int64, name, payload string) {
	w.t.Helper()
	r := journal.Record{Entity: counted, Term: 1, RecordedAt: at, CommandID: journal.CommandID(name), Expected: w.head, Prev: w.prev, Events: []journal.Event{{Type: name, Payload: []byte(payload)}}}
	w.index++
	data := journal.AppendRecord(journal.AppendEntryHeader(nil, journal.EntryRecords, 1, w.index), &r)
	for _, v := range w.machine.Apply(1, []journal.Committed{{Index: w.index, Term: 1, Data: data}}) {
		if v.Err != nil {
			w.t.Fatal(v.Err)
		}
	}
	w.head, w.prev = r.Last(), w.chain.After(&r)
}

// input returns the frames of a command.
func input(at journal.Sequence, name, payload string) []byte {
	f := abi.AppendPayload(abi.AppendName(abi.AppendSequence(nil, uint64(at)), name), []byte(payload))
	f = abi.AppendSeed(abi.AppendNow(abi.AppendCommandID(f, "id"), 1000), 7)
	return abi.AppendSource(f, abi.Source{Kind: abi.SourceClient})
}

// adds returns the output of a counter's add command, with the event's payload
// and the reply.
func adds(event, reply string) []byte {
	return abi.AppendReply(abi.AppendEvent(nil, "added", []byte(event)), []byte(reply))
}

// compared compares a command that was decided by another module, and returns
// the resulting counts.
func (w *shadowWorld) compared(c trial.Command) trial.Sum {
	w.t.Helper()
	watch := w.wish(trial.ShadowSetting{Digest: w.watches.Of(counted.Type).Digest, Share: sharding.Buckets, Revision: w.watches.Of(counted.Type).Revision + 1})
	if c.Entity, c.Seed = counted, 7; c.Now == 0 {
		c.Now = 1000
	}
	watch.Offer(c)
	got, err := w.watches.Queue().Take(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.s.one(w.t.Context(), &got)
	return watch.Sum()
}

// TestShadowDecidesOnItsOwnState checks that the shadow module decides on the
// state that it computes from the events before the command, and not from
// later events, and that it starts again for each command.
func TestShadowDecidesOnItsOwnState(t *testing.T) {
	w := newShadowWorld(t)
	if s := w.compared(trial.Command{Input: input(0, "add", `{"amount":2}`), Output: adds(`{"amount":2}`, `{"total":2}`), Fuel: 5}); s.Compared != 1 || s.Differ != 0 || s.Fuel != 5 || s.Other == 0 {
		t.Fatalf("the first command: %+v", s)
	}
	for i := range 3 {
		w.happens(int64(i), "added", `{"amount":10}`)
	}
	for range 2 {
		if s := w.compared(trial.Command{Input: input(2, "add", `{"amount":3}`), Output: adds(`{ "amount": 3 }`, `{"total":23}`)}); s.Compared != 1 || s.Differ != 0 {
			t.Fatalf("the same decision: %+v", s)
		}
	}
	for name, c := range map[string]struct {
		c    trial.Command
		want trial.Difference
	}{
		"events":    {trial.Command{Input: input(3, "add", `{"amount":3}`), Output: adds(`{"amount":4}`, `{"total":33}`)}, trial.Events},
		"reply":     {trial.Command{Input: input(3, "add", `{"amount":3}`), Output: adds(`{"amount":3}`, `{"total":34}`)}, trial.Reply},
		"rejection": {trial.Command{Input: input(3, "add", `{"amount":3}`), Output: abi.AppendReject(nil, "full", "")}, trial.Rejection},
		"failed":    {trial.Command{Input: input(3, "add", `{"amount":3}`), Failed: true}, trial.Fault},
		"frames":    {trial.Command{Input: input(3, "add", `{"amount":3}`), Output: []byte{1, 2}}, trial.Fault},
	} {
		s := w.compared(c.c)
		if s.Compared != 1 || s.Differ != 1 || len(s.Examples) != 1 {
			t.Errorf("%s: %+v", name, s)
			continue
		}
		if e := s.Examples[0]; e.In != c.want || e.Entity != counted || e.Sequence != 3 || e.Command != "add" {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if got, err := w.machine.Info(1, counted); err != nil || got.Sequence != w.head {
		t.Errorf("the log is at %d, %v, and was at %d", got.Sequence, err, w.head)
	}
	if index, _ := w.machine.Applied(1); index != w.index {
		t.Errorf("the shard's log is at %d, and was at %d", index, w.index)
	}
}

// TestShadowSkipsUndecidableCommands checks that commands that cannot be
// decided again are skipped, and that the note says why if all commands are
// skipped.
func TestShadowSkipsUndecidableCommands(t *testing.T) {
	w := newShadowWorld(t)
	w.happens(5000, "added", `{"amount":10}`)
	add := trial.Command{Input: input(1, "add", `{"amount":3}`), Output: adds(`{"amount":3}`, `{"total":13}`)}
	if s := w.compared(add); s.Passed != 1 || s.Compared != 0 {
		t.Errorf("a command decided before its events: %+v", s)
	}
	if add.Now = 5000; w.compared(add).Compared != 1 {
		t.Error("a command decided with its events is not compared")
	}
	if s := w.compared(trial.Command{Now: 5000, Input: input(2, "add", "{}")}); s.Passed != 1 || s.Compared != 0 {
		t.Errorf("events that never come: %+v", s)
	}
	if s := w.compared(trial.Command{Now: 5000, Input: []byte{1, 2, 3}}); s.Passed != 1 {
		t.Errorf("frames that are none: %+v", s)
	}
	w.missing = errors.New("it is away")
	if s := w.compared(add); s.Passed != 1 || !strings.Contains(s.Note, "it is away") {
		t.Errorf("a module that cannot be had: %+v", s)
	}
	w.missing = nil
	if s := w.compared(add); s.Compared != 1 || s.Differ != 0 || s.Note != "" {
		t.Errorf("it is there again: %+v", s)
	}
}

// TestShadowFailureCountsAsDifference checks that a module that fails on the
// events, or that a node would not call for the command, counts as differing,
// and that the next command starts in a new instance.
func TestShadowFailureCountsAsDifference(t *testing.T) {
	w := newShadowWorld(t)
	w.s.replayer.close()
	beside := w.s.types.(besideFunc)
	w.s.types = besideFunc(func() (*modules.Served, *guest.Module, error) {
		served, m, err := beside()
		other := *served
		other.Commands, other.Internal = map[string]bool{"add": true, "reset": true}, map[string]bool{"reset": true}
		return &other, m, err
	})
	w.happens(1, "added", `{"amount":10}`)
	for name, want := range map[string]string{"addd": "add", "reset": "internal"} {
		s := w.compared(trial.Command{Input: input(1, name, "{}")})
		if s.Compared != 1 || s.By[0] != 1 || !strings.Contains(s.Examples[0].Fault, want) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	w.happens(2, "added", `nonsense`)
	s := w.compared(trial.Command{Input: input(2, "add", `{"amount":1}`), Output: adds(`{"amount":1}`, `{"total":11}`)})
	if s.Compared != 1 || s.Differ != 1 || s.Examples[0].In != trial.Fault || !strings.HasPrefix(s.Examples[0].Fault, "before the command: ") {
		t.Errorf("events that it fails on: %+v", s)
	}
	if s := w.compared(trial.Command{Input: input(1, "add", `{"amount":1}`), Output: adds(`{"amount":1}`, `{"total":11}`)}); s.Compared != 1 || s.Differ != 0 {
		t.Errorf("after a fault: %+v", s)
	}
}

// TestShadowersEndWithTheirContext checks that shadowers end with their context, and that
// commands of ended watches are dropped.
func TestShadowersEndWithTheirContext(t *testing.T) {
	w := newShadowWorld(t)
	old := w.watches.Of(counted.Type)
	ask := trial.Command{Entity: counted, Now: 1000, Seed: 7, Input: input(0, "add", `{"amount":2}`), Output: adds(`{"amount":2}`, `{"total":2}`)}
	old.Offer(ask)
	now := w.wish(trial.ShadowSetting{Digest: old.Digest, Share: old.Share, Revision: 9})
	now.Offer(ask)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.s.run(ctx, w.watches.Queue()); close(ended) }()
	for deadline := time.Now().Add(time.Minute); now.Sum().Compared == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	end()
	<-ended
	if s := now.Sum(); s.Compared != 1 || s.Differ != 0 {
		t.Errorf("%+v", s)
	}
	if s := old.Sum(); s.Compared+s.Passed+s.Dropped != 0 || !old.HasEnded() {
		t.Errorf("of what nobody wants: %+v", s)
	}
	if w.s.replayer.guest != nil {
		t.Error("there is an instance left")
	}
}

// TestSameAsJSON checks that the order of members does not matter for JSON,
// but matters for bytes.
func TestSameAsJSON(t *testing.T) {
	a, b := []byte(`{"a":1,"b":2}`), []byte(`{ "b": 2, "a": 1 }`)
	if !same(a, b, true) || same(a, b, false) || !same(a, bytes.Clone(a), false) || same(a, []byte(`{"a":1}`), true) {
		t.Error("what is the same is not, or the other way round")
	}
}
