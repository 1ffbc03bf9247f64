package edge_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/api/cursor"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// subscribed is the list of events that a stream sent.
type subscribed []*entityv1.SubscribeEventsResponse

// subscribe reads a subscription that does not follow.
func subscribe(t testing.TB, c entityv1connect.EntityServiceClient, r *entityv1.SubscribeEventsRequest) (subscribed, error) {
	t.Helper()
	stream, err := c.SubscribeEvents(t.Context(), connect.NewRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var out subscribed
	for stream.Receive() {
		out = append(out, stream.Msg())
	}
	return out, stream.Err()
}

// once checks that each of the entities' events was sent once and in the order
// of its entity; want is the number of events of each entity.
func (s subscribed) once(t testing.TB, want map[string]uint64) {
	t.Helper()
	last := map[string]uint64{}
	for _, e := range s {
		if e.GetSequence() != last[e.GetEntityId()]+1 {
			t.Fatalf("event %d of %s after %d", e.GetSequence(), e.GetEntityId(), last[e.GetEntityId()])
		}
		last[e.GetEntityId()]++
	}
	for id, n := range want {
		if last[id] != n {
			t.Errorf("%s: %d of %d events", id, last[id], n)
		}
	}
	if len(last) > len(want) {
		t.Errorf("events of %d entities, want %d", len(last), len(want))
	}
}

// fill makes some entities write events, in turns, and returns the number of
// events of each entity.
func fill(t *testing.T, c entityv1connect.EntityServiceClient, rounds int) map[string]uint64 {
	t.Helper()
	want := map[string]uint64{}
	for range rounds {
		for i := range 12 {
			id := fmt.Sprint("e", i)
			if i%3 == 2 {
				_, err := c.SendCommand(t.Context(), connect.NewRequest(&entityv1.SendCommandRequest{EntityType: rpctest.Counter, EntityId: id, Command: "burst"}))
				if err != nil {
					t.Fatal(err)
				}
				want[id] += 5
				continue
			}
			addTo(t, c, id, i)
			want[id]++
		}
	}
	return want
}

// TestSubscribe: each event is sent once, in the order of its entity, and a
// stream can continue after every cursor that it sent, even within a record.
func TestSubscribe(t *testing.T) {
	s := serve(t, edge.Options{})
	c := s.entities()
	want := fill(t, c, 3)
	s.send(t, &entityv1.SendCommandRequest{EntityType: rpctest.Blob, EntityId: "other", Command: "set"})
	all, err := subscribe(t, c, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter})
	if err != nil {
		t.Fatal(err)
	}
	all.once(t, want)
	for i := range all {
		rest, err := subscribe(t, c, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: all[i].GetCursor()})
		if err != nil || len(rest) != len(all)-i-1 {
			t.Fatalf("after event %d: %d events, %v", i, len(rest), err)
		}
		append(slices.Clone(all[:i+1]), rest...).once(t, want)
	}
	tagged, err := subscribe(t, c, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Tag: "sum"})
	if err != nil || len(tagged) != 24 {
		t.Fatalf("%d events with the tag, %v", len(tagged), err)
	}
	for _, e := range tagged {
		if e.GetEventType() != "added" || !slices.Contains(e.GetTags(), "sum") || e.GetJson() == nil {
			t.Fatalf("with the tag: %v", e)
		}
	}
	var parts subscribed
	for shard := uint32(1); shard <= rpctest.Shards; shard++ {
		part, err := subscribe(t, c, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Shards: []uint32{shard}, AsData: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range part {
			if sharding.ShardOf(counter(e.GetEntityId()), rpctest.Shards) != sharding.ShardID(shard) || len(e.GetData()) == 0 {
				t.Fatalf("in shard %d: %v", shard, e)
			}
		}
		parts = append(parts, part...)
	}
	parts.once(t, want)
}

func (s subscribed) cursors() (out []string) {
	for _, e := range s {
		out = append(out, e.GetCursor())
	}
	return out
}

// TestPartialCursors: a reader that joins the partial cursors in order has,
// after each event, the same cursor as a reader of whole cursors. The last
// partial cursor also covers events that did not match.
func TestPartialCursors(t *testing.T) {
	s := serve(t, edge.Options{})
	c := s.entities()
	fill(t, c, 2)
	s.send(t, &entityv1.SendCommandRequest{EntityType: rpctest.Blob, EntityId: "other", Command: "set"})
	whole, err := subscribe(t, c, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := subscribe(t, c, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, PartialCursors: true})
	if err != nil || len(parts) != len(whole)+1 || parts[len(whole)].GetSequence() != 0 {
		t.Fatalf("%d messages for %d events, %v", len(parts), len(whole), err)
	}
	var at cursor.Cursor
	for i, text := range parts.cursors() {
		part, err := cursor.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		at.Join(&part)
		if i < len(whole) && at.Text() != whole[i].GetCursor() {
			t.Fatalf("after message %d: %v, want %s", i, at, whole[i].GetCursor())
		}
	}
	for _, p := range at.Places {
		if p.Ordinal != 0 || p.Events != 0 {
			t.Errorf("at the end %v is within an entry", p)
		}
	}
	none, err := subscribe(t, c, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: at.Text()})
	if err != nil || len(none) != 0 {
		t.Errorf("after the end: %v, %v", none, err)
	}
}

// TestForeignCursors: a cursor of a different subscription is rejected.
func TestForeignCursors(t *testing.T) {
	s := serve(t, edge.Options{})
	c := s.entities()
	fill(t, c, 1)
	all, err := subscribe(t, c, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter})
	if err != nil {
		t.Fatal(err)
	}
	good := all[len(all)-1].GetCursor()
	at, err := cursor.Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	shards, mark, ahead := at, at, at
	shards.Shards++
	mark.Mark++
	ahead.Places = []cursor.Place{{Shard: 1, Position: cursor.Position{Index: 1 << 40}}}
	for _, bad := range []struct {
		name string
		r    *entityv1.SubscribeEventsRequest
		code connect.Code
	}{
		{"text", &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: "x"}, connect.CodeInvalidArgument},
		{"cut", &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: good[:len(good)-1]}, connect.CodeInvalidArgument},
		{"too long", &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: strings.Repeat("A", cursor.MaxText+1)}, connect.CodeInvalidArgument},
		{"another type", &entityv1.SubscribeEventsRequest{EntityType: rpctest.Blob, Cursor: good}, connect.CodeInvalidArgument},
		{"another tag", &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Tag: "sum", Cursor: good}, connect.CodeInvalidArgument},
		{"other shards", &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: shards.Text()}, connect.CodeInvalidArgument},
		{"another cluster", &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: mark.Text()}, connect.CodeInvalidArgument},
		{"ahead", &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: ahead.Text()}, connect.CodeOutOfRange},
		{"ahead, following", &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: ahead.Text(), Follow: true}, connect.CodeOutOfRange},
		{"no such shard", &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Shards: []uint32{rpctest.Shards + 1}}, connect.CodeInvalidArgument},
		{"no such type", &entityv1.SubscribeEventsRequest{EntityType: "nothing"}, connect.CodeNotFound},
	} {
		if got, err := subscribe(t, c, bad.r); connect.CodeOf(err) != bad.code || len(got) != 0 {
			t.Errorf("%s: %d events, %v", bad.name, len(got), err)
		}
	}
}

// TestCursorOfLostHistoryIsRejected: two clusters with the same name have the same
// number of events, for example a cluster and a restored copy of its data that
// has diverged. A cursor of one cluster is rejected by the other cluster,
// for every form of request. A cursor of an earlier release, which does not
// identify its history, is accepted.
func TestCursorOfLostHistoryIsRejected(t *testing.T) {
	first := serve(t, edge.Options{})
	want := fill(t, first.entities(), 1)
	all, err := subscribe(t, first.entities(), &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter})
	if err != nil {
		t.Fatal(err)
	}
	second := serve(t, edge.Options{})
	fill(t, second.entities(), 1)
	const reason = "CURSOR_HISTORY_LOST"
	for _, e := range all {
		for _, follow := range []bool{false, true} {
			_, err := subscribe(t, second.entities(), &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: e.GetCursor(), Follow: follow})
			if info, ok := errorInfo(err); connect.CodeOf(err) != connect.CodeOutOfRange || !ok || info.GetReason() != reason {
				t.Fatalf("a cursor of a lost history, following %v: %v", follow, err)
			}
		}
	}
	lost := all[len(all)-1].GetCursor()
	for _, r := range []struct{ path, lastID string }{{"/e/counter/events?follow=false", lost}, {"/e/counter/events?follow=false&cursor=" + lost, ""}, {"/e/counter/events", lost}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, second.url+r.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/event-stream")
		req.Header.Set("Last-Event-ID", r.lastID)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if !strings.Contains(string(text), `"reason":"`+reason+`"`) {
			t.Errorf("%s: %d, %s, %v", r.path, res.StatusCode, text, err)
		}
	}

	at, err := cursor.Parse(all[len(all)/2].GetCursor())
	if err != nil {
		t.Fatal(err)
	}
	for i := range at.Places {
		at.Places[i].History = 0
	}
	rest, err := subscribe(t, second.entities(), &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: at.Text()})
	if err != nil || len(rest) == 0 {
		t.Fatalf("a cursor of an earlier release: %d events, %v", len(rest), err)
	}
	if now, err := cursor.Parse(rest[len(rest)-1].GetCursor()); err != nil || !slices.ContainsFunc(now.Places, func(p cursor.Place) bool { return p.History != 0 }) {
		t.Errorf("it names no history after events: %+v, %v", now, err)
	}
	all.once(t, want)
}

// TestLeaderRejectsCursorsAhead: a subscription whose cursor is ahead of a
// follower's replica is served by the leader. The leader knows whether its
// log was truncated, while the follower may just not have received the whole
// log yet.
func TestLeaderRejectsCursorsAhead(t *testing.T) {
	c, h2 := serveFleet(t, 2)
	c.Forwards = true
	c.Holds = func(sharding.NodeID, sharding.ShardID) bool { return true }
	entry := entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(2).Addr)
	fill(t, entry, 1)
	all, err := subscribe(t, entry, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter})
	if err != nil {
		t.Fatal(err)
	}
	at, err := cursor.Parse(all[len(all)-1].GetCursor())
	if err != nil {
		t.Fatal(err)
	}
	at.Places[0].Index += 100
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := entry.SubscribeEvents(ctx, connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: at.Text(), Follow: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
	}
	if connect.CodeOf(stream.Err()) != connect.CodeOutOfRange {
		t.Error(stream.Err())
	}
}

// TestCursorOfFasterReplicaIsAccepted: a cursor that a different replica has
// sent is valid even if the leader has not applied as many entries as that
// replica. The subscription continues when the leader has applied them.
func TestCursorOfFasterReplicaIsAccepted(t *testing.T) {
	s := serve(t, edge.Options{})
	c := s.entities()
	fill(t, c, 2)
	all, err := subscribe(t, c, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter})
	if err != nil {
		t.Fatal(err)
	}
	last := all[len(all)-1].GetCursor()
	s.world.SetUnapplied(3)
	if got, err := subscribe(t, c, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: last}); err != nil || len(got) != 0 {
		t.Fatalf("%d events, %v", len(got), err)
	}
	stream, err := c.SubscribeEvents(t.Context(), connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: last, Follow: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	s.world.SetUnapplied(0)
	addTo(t, c, "e0", 1)
	if !stream.Receive() || stream.Msg().GetEntityId() != "e0" || stream.Msg().GetSequence() != 3 {
		t.Errorf("%v %v", stream.Msg(), stream.Err())
	}
}

// TestSubscriptionFromNewestEvent: a subscription from the newest event is
// sent its start position, then each event that is committed later, and no
// earlier event. A new subscription can continue from the cursor.
func TestSubscriptionFromNewestEvent(t *testing.T) {
	c, h2 := serveFleet(t, 3)
	c.Forwards = true
	for _, local := range []bool{true, false} { // whether the asked node has replicas
		t.Run(fmt.Sprint("local ", local), func(t *testing.T) {
			c.Holds = func(n sharding.NodeID, _ sharding.ShardID) bool { return local || n != "n3" }
			entry := entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(3).Addr)
			before := fill(t, entry, 2)
			known := map[string]uint64{}
			all, err := subscribe(t, entry, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range all {
				known[e.GetEntityId()] = e.GetSequence()
			}
			if len(known) != len(before) {
				t.Fatalf("events of %d entities", len(known))
			}
			follow := func(at string, want int) (got subscribed) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				stream, err := entry.SubscribeEvents(ctx, connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Follow: true, FromNewest: true, Cursor: at}))
				if err != nil {
					t.Fatal(err)
				}
				defer stream.Close()
				if at == "" && (!stream.Receive() || stream.Msg().GetSequence() != 0 || stream.Msg().GetCursor() == "") {
					t.Fatalf("it is not told where it begins: %v, %v", stream.Msg(), stream.Err())
				}
				if at == "" {
					fill(t, entry, 1)
				}
				for len(got) < want && stream.Receive() {
					got = append(got, stream.Msg())
				}
				if len(got) < want {
					t.Fatalf("%d of %d events, %v", len(got), want, stream.Err())
				}
				return got
			}
			const round = 8 + 4*5 // number of events
			got := follow("", round)
			got.after(t, maps.Clone(known))
			fill(t, entry, 1)
			half := len(got) / 2
			again := follow(got[half].GetCursor(), round-half-1+round)
			append(slices.Clone(got[:half+1]), again...).after(t, known)
		})
	}
	entry := entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(1).Addr)
	if _, err := subscribe(t, entry, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, FromNewest: true}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("without following: %v", err)
	}
}

// after checks that the events of each entity follow the last known sequence
// of the entity without gaps.
func (s subscribed) after(t testing.TB, known map[string]uint64) {
	t.Helper()
	for _, e := range s {
		if e.GetSequence() != known[e.GetEntityId()]+1 {
			t.Fatalf("event %d of %s after %d", e.GetSequence(), e.GetEntityId(), known[e.GetEntityId()])
		}
		known[e.GetEntityId()]++
	}
}

// TestSubscriptionContinuesAcrossLeaderChanges: a follower at one node gets each event once while the
// shards move and nodes fail, and a subscription that starts later at a
// different node continues after its cursor.
func TestSubscriptionContinuesAcrossLeaderChanges(t *testing.T) {
	for _, partial := range []bool{false, true} {
		t.Run(fmt.Sprint("held ", partial), func(t *testing.T) {
			c, h2 := serveFleet(t, 3)
			c.Forwards = true
			if partial {
				c.Holds = func(n sharding.NodeID, shard sharding.ShardID) bool { return n == "n3" && shard%2 == 0 }
			}
			entry := entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(3).Addr)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := entry.SubscribeEvents(ctx, connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Follow: true}))
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			var got subscribed
			want := map[string]uint64{}
			for i := range 60 {
				shard := sharding.ShardID(1 + i%rpctest.Shards)
				switch i % 10 {
				case 3, 7:
					c.Move(shard, sharding.NodeID(fmt.Sprint("n", 1+i/10%3)))
				case 5:
					c.Node(1).Kill()
					for s := sharding.ShardID(1); s <= rpctest.Shards; s++ {
						if c.Leader(s) == "n1" {
							c.Move(s, "n2")
						}
					}
				case 8:
					if err := c.Node(1).Start(); err != nil {
						t.Fatal(err)
					}
				}
				for n, count := range fill(t, entry, 1) {
					want[n] += count
				}
			}
			total := 0
			for _, n := range want {
				total += int(n)
			}
			for len(got) < total && stream.Receive() {
				got = append(got, stream.Msg())
			}
			if len(got) < total {
				t.Fatalf("%d of %d events, %v", len(got), total, stream.Err())
			}
			got.once(t, want)
			// The cursor is valid at any node.
			half := len(got) / 2
			other := entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(2).Addr)
			rest, err := subscribe(t, other, &entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Cursor: got[half].GetCursor()})
			if err != nil {
				t.Fatal(err)
			}
			append(slices.Clone(got[:half+1]), rest...).once(t, want)
		})
	}
}

// TestSubscriptionsEndAtStop: a following stream ends with unavailable when the
// node stops, whether its shards are read there or elsewhere.
func TestSubscriptionsEndAtStop(t *testing.T) {
	c, h2 := serveFleet(t, 2)
	entry := entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(2).Addr)
	c.Move(2, "n2")
	addTo(t, entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(1).Addr), inShard(1), 1)
	stream, err := entry.SubscribeEvents(t.Context(), connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Follow: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	c.Node(2).Stop()
	for stream.Receive() {
	}
	if connect.CodeOf(stream.Err()) != connect.CodeUnavailable {
		t.Errorf("ended with %v", stream.Err())
	}
}

// TestFollowingStreamEndsWithoutQuorum: a following stream ends with
// unavailable if its node has no quorum of a shard, or no leader is known,
// and continues if this state lasts only for a moment.
func TestFollowingStreamEndsWithoutQuorum(t *testing.T) {
	for name, cut := range map[string]func(*rpctest.Fleet){
		"no quorum": func(c *rpctest.Fleet) { c.Node(2).CutOff.Store(true) },
		"no leader": func(c *rpctest.Fleet) { c.Move(2, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, h2 := serveFleet(t, 2)
			c.Holds = func(n sharding.NodeID, shard sharding.ShardID) bool { return n == "n2" && shard != 2 }
			if name == "no quorum" {
				c.Holds = func(n sharding.NodeID, _ sharding.ShardID) bool { return n == "n2" }
			}
			first := entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(1).Addr)
			entry := entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(2).Addr)
			addTo(t, first, inShard(1), 1)
			stream, err := entry.SubscribeEvents(t.Context(), connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: rpctest.Counter, Follow: true}))
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			if !stream.Receive() {
				t.Fatal(stream.Err())
			}
			addTo(t, first, inShard(1), 1)
			if !stream.Receive() {
				t.Fatalf("a stream of a node that is well ended: %v", stream.Err())
			}
			cut(c)
			for stream.Receive() {
			}
			if connect.CodeOf(stream.Err()) != connect.CodeUnavailable {
				t.Errorf("ended with %v", stream.Err())
			}
		})
	}
}

// TestSlowSubscriberDoesNotBlockOthers: a subscriber that does not read uses a
// limited amount of memory, and others continue.
func TestSlowSubscriberDoesNotBlockOthers(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := serve(t, edge.Options{WriteStall: 2 * time.Second, Registerer: registry})
	c := s.entities()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	slow, err := c.SubscribeEvents(ctx, connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: rpctest.Blob, Follow: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	big := make([]byte, 64<<10)
	const events = 200 // more than connections buffer
	for i := range events {
		s.send(t, &entityv1.SendCommandRequest{EntityType: rpctest.Blob, EntityId: fmt.Sprint(i), Command: "set", Payload: &entityv1.SendCommandRequest_Data{Data: big}})
	}
	all, err := subscribe(t, s.entities(), &entityv1.SubscribeEventsRequest{EntityType: rpctest.Blob})
	if err != nil || len(all) != events {
		t.Fatalf("%d events, %v", len(all), err)
	}
	eventually(t, "the slow one to be cut", func() bool { return metric(t, registry, "hostd_rpc_subscribers") == 0 })
	if sent := metric(t, registry, "hostd_rpc_subscription_events_total"); sent < events || sent >= 2*events {
		t.Errorf("sent %v events", sent)
	}
	if sent, aged := metric(t, registry, "hostd_rpc_subscription_events_total"), metric(t, registry, "hostd_rpc_subscription_lag_seconds"); sent != aged {
		t.Errorf("sent %v events, %v with their age", sent, aged)
	}
	n := 0
	for slow.Receive() {
		n++
	}
	if slow.Err() == nil || n >= events {
		t.Errorf("the slow one got %d events, %v", n, slow.Err())
	}
}

// metric returns the value of a metric without labels.
func metric(t testing.TB, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
