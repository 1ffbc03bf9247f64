package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/tests/support/loopback"
	"github.com/hostd/hostd/tests/support/rpctest"
)

func add(id string, amount int) client.Command {
	return client.Command{EntityType: rpctest.Counter, EntityID: id, Name: "add", Data: fmt.Appendf(nil, `{"amount":%d}`, amount)}
}

func TestSendAndQuery(t *testing.T) {
	w := rpctest.New()
	w.Fail = map[string]error{"busy": request.ErrBusy}
	_, addr := serve(t, w)
	c := dial(t, addr)
	ctx := t.Context()

	first := add("a", 3)
	first.ID = "c1"
	reply, err := c.Send(ctx, first)
	if err != nil || string(reply.Data) != `{"total":3}` || reply.Sequence != 1 || reply.EventCount != 1 || reply.Duplicate || reply.NodeID != "n1" {
		t.Errorf("first: %+v, %v", reply, err)
	}
	if reply, err = c.Send(ctx, first); err != nil || !reply.Duplicate || reply.Sequence != 1 {
		t.Errorf("again: %+v, %v", reply, err)
	}
	expected := uint64(1)
	next := add("a", 4)
	next.ExpectedSequence = &expected
	if reply, err = c.Send(ctx, next); err != nil || reply.Sequence != 2 {
		t.Errorf("with the expected sequence: %+v, %v", reply, err)
	}
	var mismatch *client.SequenceMismatchError
	if _, err = c.Send(ctx, next); !errors.As(err, &mismatch) || mismatch.Actual != 2 || client.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("with a sequence that is past: %v", err)
	}
	var rejected *client.RejectedError
	_, err = c.Send(ctx, client.Command{EntityType: rpctest.Counter, EntityID: "a", Name: "reject"})
	if !errors.As(err, &rejected) || rejected.Code != "insufficient_funds" || rejected.Message != "the balance is too low" {
		t.Errorf("rejection: %v", err)
	}
	_, err = c.Send(ctx, client.Command{EntityType: "nothing", EntityID: "a", Name: "add"})
	if !client.IsNotFound(err) {
		t.Errorf("unknown type: %v", err)
	}
	_, err = c.Send(ctx, client.Command{EntityType: rpctest.Counter, EntityID: "a", Name: "busy"})
	var other *client.Error
	if !errors.As(err, &other) || other.Code != connect.CodeResourceExhausted {
		t.Errorf("busy: %v", err)
	}
	for _, stale := range []bool{false, true} {
		answer, err := c.Query(ctx, client.Query{EntityType: rpctest.Counter, EntityID: "a", Name: "total", Stale: stale})
		if err != nil || string(answer.Data) != `{"total":7}` || answer.Sequence != 2 {
			t.Errorf("query: %+v, %v", answer, err)
		}
	}
	described, err := c.Entity(ctx, rpctest.Counter, "a")
	if err != nil || described.GetSequence() != 2 {
		t.Errorf("entity: %v, %v", described, err)
	}
}

func TestReadsAndModules(t *testing.T) {
	w := rpctest.New()
	_, addr := serve(t, w)
	c := dial(t, "http://"+addr+"/")
	ctx := t.Context()
	for i := range 5 {
		if _, err := c.Send(ctx, add(fmt.Sprint("e", i), i)); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for e, err := range c.List(ctx, &entityv1.ListEntitiesRequest{EntityType: rpctest.Counter, PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.GetEntityId())
	}
	if len(ids) != 5 {
		t.Errorf("listed %v", ids)
	}
	for _, err := range c.List(ctx, &entityv1.ListEntitiesRequest{EntityType: "nothing"}) {
		if !client.IsNotFound(err) {
			t.Errorf("listing an unknown type: %v", err)
		}
	}
	wasm := []byte("\x00asm-module")
	up, err := c.Upload(ctx, wasm, true)
	if err != nil || strings.Join(up.EntityTypes, " ") != "uploaded" {
		t.Fatalf("upload: %+v, %v", up, err)
	}
	if got, err := c.Download(ctx, up.Digest); err != nil || string(got) != string(wasm) {
		t.Errorf("download: %q, %v", got, err)
	}
	if _, err := c.Activate(ctx, "uploaded", up.Digest); err != nil {
		t.Error(err)
	}
	if m, err := c.Module(ctx, up.Digest); err != nil || m.GetModule().GetName() != "test" {
		t.Errorf("module: %v, %v", m, err)
	}
	if m, err := c.ActiveModule(ctx, "uploaded"); err != nil || m.GetModule().GetDigest() != up.Digest {
		t.Errorf("active module: %v, %v", m, err)
	}
	if ms, err := c.Modules(ctx); err != nil || len(ms) != 1 {
		t.Errorf("modules: %v, %v", ms, err)
	}
	if cluster, err := c.Cluster(ctx); err != nil || cluster.GetCoordinator() != "n1" {
		t.Errorf("cluster: %v, %v", cluster, err)
	}
	if shards, err := c.Shards(ctx); err != nil || len(shards) != 4 {
		t.Errorf("shards: %v, %v", shards, err)
	}
	if _, err := c.Drain(ctx, "n1"); client.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("drain at a node that only answers reads: %v", err)
	}
	if _, err := c.Upload(ctx, []byte("no module"), false); client.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("upload of something else: %v", err)
	}
}

// TestSendSurvivesRestart checks that a call retries until a node answers, and
// that a command that has run gets its stored reply.
func TestSendSurvivesRestart(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	r, addr := start(t, w, loopback.Host()+":0", edge.Options{})
	c := dial(t, addr)
	w.Pause()
	type outcome struct {
		reply client.Reply
		err   error
	}
	answered := make(chan outcome, 1)
	go func() {
		reply, err := c.Send(t.Context(), add("a", 3))
		answered <- outcome{reply, err}
	}()
	eventually(t, "the command to arrive", func() bool { now, _, _ := w.Queued(); return now == 1 })
	r.stop(t, 0) // the connection breaks with a command in flight
	w.Resume()
	eventually(t, "the command to run", func() bool { return w.Total("a") == 3 })
	r, _ = start(t, w, addr, edge.Options{})
	o := <-answered
	if o.err != nil || !o.reply.Duplicate || string(o.reply.Data) != `{"total":3}` {
		t.Errorf("reply %+v, %v", o.reply, o.err)
	}
	c.Close()
	r.stop(t, 5*time.Second)
	if got := w.Total("a"); got != 3 {
		t.Errorf("the command took effect more than once: total %d", got)
	}
}

// TestSendContinuesOnNextNode checks that a call succeeds if at least one of
// several nodes is alive.
func TestSendContinuesOnNextNode(t *testing.T) {
	w := rpctest.New()
	gone, nowhere := start(t, w, loopback.Host()+":0", edge.Options{})
	gone.stop(t, time.Second)
	_, addr := serve(t, w)
	c := dial(t, nowhere, addr)
	for range 3 {
		if _, err := c.Send(t.Context(), add("a", 1)); err != nil {
			t.Fatal(err)
		}
	}
	w.SetTypesError(request.ErrNotReady)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Send(ctx, add("a", 1)); err == nil || !client.IsUnavailable(err) && !client.OutcomeUnknown(err) {
		t.Errorf("with no node ready: %v", err)
	}
	if w.Total("a") != 3 {
		t.Errorf("total %d", w.Total("a"))
	}
}

// TestReadEventsResumes checks that a reader sees every event exactly once
// across restarts.
func TestReadEventsResumes(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	r, addr := start(t, w, loopback.Host()+":0", edge.Options{})
	c := dial(t, addr)
	for i := range 10 {
		if _, err := c.Send(t.Context(), add("a", i)); err != nil {
			t.Fatal(err)
		}
	}
	next := uint64(1)
	for e, err := range c.ReadEvents(t.Context(), client.EventRange{EntityType: rpctest.Counter, EntityID: "a", Follow: true, To: 20}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Sequence != next || string(e.Data) != fmt.Sprintf(`{"amount":%d}`, next-1) || e.Type != "added" {
			t.Fatalf("event %+v, wanted sequence %d", e, next)
		}
		next++
		switch e.Sequence {
		case 5, 15: // in the middle of the stream
			r.stop(t, 0)
			r, _ = start(t, w, addr, edge.Options{})
		case 10:
			for i := range 10 {
				if _, err := c.Send(t.Context(), add("a", 10+i)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if next != 21 {
		t.Errorf("read up to %d", next-1)
	}
	for range c.ReadEvents(t.Context(), client.EventRange{EntityType: rpctest.Counter, EntityID: "a", Follow: true}) {
		break // must leave no subscription, which the check of the watchers shows
	}
	eventually(t, "the watch to end", func() bool { return w.Watchers(counter("a")) == 0 })
	for _, err := range c.ReadEvents(t.Context(), client.EventRange{EntityType: "nothing", EntityID: "a"}) {
		if !client.IsNotFound(err) {
			t.Errorf("unknown type: %v", err)
		}
	}
	c.Close()
	r.stop(t, 5*time.Second)
}

func TestAddresses(t *testing.T) {
	for _, bad := range [][]string{nil, {""}, {"ftp://x"}, {"http://"}, {"127.0.0.1:1", "://"}} {
		if c, err := client.New(bad, client.Options{}); err == nil {
			t.Errorf("%q made %v", bad, c)
		}
	}
}

// TestEarlierAttemptMayHaveRun checks that once the outcome of an attempt is
// unknown, a later rejection for lack of capacity leaves it unknown.
func TestEarlierAttemptMayHaveRun(t *testing.T) {
	w := rpctest.New()
	w.Fail = map[string]error{"lost": request.ErrOutcomeUnknown}
	_, addr := serve(t, w)
	c := dial(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	go func() {
		eventually(t, "an attempt", func() bool { _, _, batches := w.Queued(); return batches > 0 })
		w.SetTypesError(request.ErrOverloaded)
	}()
	_, err := c.Send(ctx, client.Command{EntityType: rpctest.Counter, EntityID: "a", Name: "lost"})
	if !client.OutcomeUnknown(err) {
		t.Errorf("error %v", err)
	}
}
