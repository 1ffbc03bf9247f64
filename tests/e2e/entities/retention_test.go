package entities

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/offline"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestRetentionCompactsEvents checks that snapshots truncate the events outside
// the idempotency window of an entity whose type retains few events. The error
// for a request for truncated events says at which sequence the events begin,
// nothing else changes, and the data on disk verifies.
func TestRetentionCompactsEvents(t *testing.T) {
	testkit.Long(t, "long")
	const commands, window = 10_700, 10_000
	n := newNode(t)
	cmd := adding("trail")
	const last = 420 // one command at a time, because a snapshot retains more events while commands are in flight, and two snapshots are kept
	n.fill("trail", 0, commands-last)
	for i := range last {
		n.fill("trail", commands-last+i, 1)
	}
	n.send("other", "add", map[string]int{"amount": 1}) // an entity of a type that retains all events
	n.awaitCut("trail", 300)
	for range 2 {
		first := n.begins("trail")
		if first > commands-window+1 {
			t.Fatalf("the events begin at %d: command ids that count are forgotten", first)
		}
		next := first
		for e, err := range n.c.ReadEvents(t.Context(), client.EventRange{EntityType: "trail", EntityID: "x", From: first}) {
			if err != nil || e.Sequence != next {
				t.Fatalf("event %d where %d is due: %v", e.Sequence, next, err)
			}
			next++
		}
		if next != commands+1 {
			t.Errorf("the events end before %d", next)
		}
		for at, code := range map[uint64]connect.Code{1: connect.CodeOutOfRange, first - 1: connect.CodeOutOfRange, commands: 0} {
			res, err := n.api().GetState(t.Context(), connect.NewRequest(&entityv1.GetStateRequest{EntityType: "trail", EntityId: "x", AtSequence: &at}))
			if code == 0 && err != nil || code != 0 && connect.CodeOf(err) != code {
				t.Errorf("the state at %d: %v %v", at, res, err)
			}
		}
		n.streams(first, commands)
		if r, err := n.c.Send(t.Context(), cmd(commands-window/2)); err != nil || !r.Duplicate {
			t.Errorf("a command of the window sent again: %+v %v", r, err)
		}
		a, err := n.c.Query(t.Context(), client.Query{EntityType: "trail", EntityID: "x", Name: "state"})
		var s state
		if err == nil {
			err = json.Unmarshal(a.Data, &s)
		}
		if err != nil || s.Total != commands {
			t.Errorf("%+v %v", s, err)
		}
		n.stop()
		if faults, err := offline.Verify(t.Context(), n.dir, io.Discard); err != nil || faults > 0 {
			t.Errorf("verify: %d faults, %v", faults, err)
		}
		n.start()
	}
}

// TestRetentionIsASetting checks that a setting overrides the type's retention
// of events, from the next snapshot and for as long as the setting exists.
// Truncated events do not come back.
func TestRetentionIsASetting(t *testing.T) {
	const commands, key = 10_300, "entity.alarm.retain-events"
	n := newNode(t)
	n.fill("alarm", 0, commands)
	if first := n.begins("alarm"); first != 1 {
		t.Fatalf("of a type that retains all the events begin at %d", first)
	}
	if _, err := n.c.PutSetting(t.Context(), key, "few"); err == nil || !strings.Contains(err.Error(), "1000000000") {
		t.Errorf("a setting that says nothing: %v", err)
	}
	for key, value := range map[string]string{key: "50", "entity.alarm.retain-snapshots": "1"} {
		if _, err := n.c.PutSetting(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	sent := commands
	more := func() {
		n.fill("alarm", sent, 40)
		sent += 40
	}
	sent += n.fillUntilCut("alarm", sent)
	if _, err := n.c.PutSetting(t.Context(), key, ""); err != nil {
		t.Fatal(err)
	}
	more() // snapshots of x may have been in progress
	first := n.begins("alarm")
	for range 5 {
		more()
	}
	if now := n.begins("alarm"); now != first {
		t.Errorf("without the setting the events begin at %d, before at %d", now, first)
	}
	n.stop()
	if faults, err := offline.Verify(t.Context(), n.dir, io.Discard); err != nil || faults > 0 {
		t.Errorf("verify: %d faults, %v", faults, err)
	}
	n.start()
	r, err := n.c.Query(t.Context(), client.Query{EntityType: "alarm", EntityID: "x", Name: "state"})
	var s state
	if err == nil {
		err = json.Unmarshal(r.Data, &s)
	}
	if err != nil || s.Total != int64(sent) || n.begins("alarm") != first {
		t.Errorf("after a stop: %+v, events from %d: %v", s, n.begins("alarm"), err)
	}
}

// adding returns a function that makes the i-th adding command to entity x of a
// type.
func adding(entityType string) func(i int) client.Command {
	return func(i int) client.Command {
		return client.Command{EntityType: entityType, EntityID: "x", Name: "add", ID: fmt.Sprint("c", i), Data: []byte(`{"amount":1}`)}
	}
}

// fill sends commands to entity x of a type.
func (n *node) fill(entityType string, from, commands int) {
	n.t.Helper()
	cmd := adding(entityType)
	stream := n.c.Stream(client.StreamOptions{})
	failed := make(chan error, commands)
	for i := range commands {
		if err := stream.Send(n.t.Context(), cmd(from+i), func(_ client.Reply, err error) { failed <- err }); err != nil {
			n.t.Fatal(err)
		}
	}
	for range commands {
		if err := <-failed; err != nil {
			n.t.Fatal(err)
		}
	}
	if err := stream.Close(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

// fillUntilCut sends commands to entity x of a type until its first hundred
// events are truncated. It returns the number of commands.
func (n *node) fillUntilCut(entityType string, from int) (sent int) {
	n.t.Helper()
	for end := time.Now().Add(60 * time.Second); n.begins(entityType) < 100; sent += 40 {
		if n.fill(entityType, from+sent, 40); time.Now().After(end) {
			n.t.Fatalf("the events begin at %d", n.begins(entityType))
		}
	}
	return sent
}

// awaitCut waits until the events of entity x of a type begin at the sequence
// least or later.
func (n *node) awaitCut(entityType string, least uint64) (first uint64) {
	n.t.Helper()
	for end := time.Now().Add(60 * time.Second); first < least; time.Sleep(20 * time.Millisecond) {
		first = n.begins(entityType)
		if time.Now().After(end) {
			n.t.Fatalf("its events begin at %d", first)
		}
	}
	return first
}

// begins returns the first readable sequence of entity x of a type.
func (n *node) begins(entityType string) uint64 {
	n.t.Helper()
	for e, err := range n.c.ReadEvents(n.t.Context(), client.EventRange{EntityType: entityType, EntityID: "x"}) {
		if err == nil {
			return e.Sequence
		}
		var first uint64
		if _, after, found := strings.Cut(err.Error(), "before sequence "); found {
			fmt.Sscan(after, &first)
		}
		if first == 0 {
			n.t.Fatal(err)
		}
		return first
	}
	return math.MaxUint64
}

// streams checks the events that subscribers of a type with truncated events
// receive.
func (n *node) streams(first, last uint64) {
	n.t.Helper()
	for _, skip := range []bool{false, true} {
		stream, err := n.api().SubscribeEvents(n.t.Context(), connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: "trail", SkipTruncated: skip}))
		if err != nil {
			n.t.Fatal(err)
		}
		next, skipped := first, uint64(0)
		for stream.Receive() {
			if got := stream.Msg().GetSequence(); got != next {
				n.t.Fatalf("a subscriber gets %d where %d is due", got, next)
			}
			skipped += stream.Msg().GetSkipped()
			next++
		}
		if skip && skipped != first-1 {
			n.t.Errorf("%d events are said to be passed over, %d were cut", skipped, first-1)
		}
		err = stream.Err()
		stream.Close()
		var cut *connect.Error
		if skip && (err != nil || next != last+1) || !skip && (!errors.As(err, &cut) || cut.Code() != connect.CodeOutOfRange || next != first) {
			n.t.Errorf("skip %v: a subscriber ends before %d with %v", skip, next, err)
		}
		n.follows(skip, first, last)
	}
}

// follows does the same check as streams, with the Go client.
func (n *node) follows(skip bool, first, last uint64) {
	n.t.Helper()
	skipped, next := uint64(0), first
	sub := client.Subscription{EntityType: "trail", SkipTruncated: skip, Skipped: func(events uint64) { skipped += events }}
	for e, err := range n.c.Subscribe(n.t.Context(), sub) {
		var cut *client.TruncatedError
		switch {
		case errors.As(err, &cut) && !skip && cut.First == first && client.CodeOf(err) == connect.CodeOutOfRange:
			return
		case err != nil || e.Sequence != next || skipped != first-1:
			n.t.Fatalf("skip %v: event %d where %d is due, %d skipped: %v", skip, e.Sequence, next, skipped, err)
		}
		next++
	}
	if !skip || next != last+1 {
		n.t.Errorf("skip %v: it ends before %d", skip, next)
	}
}
