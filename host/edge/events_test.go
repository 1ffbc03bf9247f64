package edge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// send runs a command that must succeed.
func (s *site) send(t testing.TB, r *entityv1.SendCommandRequest) *entityv1.SendCommandResponse {
	t.Helper()
	res, err := s.entities().SendCommand(t.Context(), connect.NewRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg
}

// events reads a range of a history to its end.
func (s *site) events(t testing.TB, r *entityv1.ReadEventsRequest) ([]*entityv1.ReadEventsResponse, error) {
	t.Helper()
	stream, err := s.entities().ReadEvents(t.Context(), connect.NewRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var out []*entityv1.ReadEventsResponse
	for stream.Receive() {
		out = append(out, stream.Msg())
	}
	return out, stream.Err()
}

func TestReadEvents(t *testing.T) {
	s := serve(t, edge.Options{})
	first := add("a", 1)
	first.CommandId = "c1"
	s.send(t, first)
	s.send(t, &entityv1.SendCommandRequest{EntityType: "counter", EntityId: "a", Command: "burst"}) // events 2 to 6
	s.send(t, add("a", 2))                                                                          // event 7
	for _, c := range []struct {
		from, to uint64
		want     string
	}{
		{0, 0, "1 2 3 4 5 6 7"},
		{1, 0, "1 2 3 4 5 6 7"},
		{3, 5, "3 4 5"}, // within one record
		{7, 7, "7"},
		{6, 100, "6 7"},
		{8, 0, ""},
		{5, 4, ""},
	} {
		got, err := s.events(t, &entityv1.ReadEventsRequest{EntityType: "counter", EntityId: "a", FromSequence: c.from, ToSequence: c.to})
		if err != nil {
			t.Fatal(err)
		}
		var sequences []string
		for _, e := range got {
			sequences = append(sequences, fmt.Sprint(e.GetSequence()))
		}
		if strings.Join(sequences, " ") != c.want {
			t.Errorf("from %d to %d: %v, want %s", c.from, c.to, sequences, c.want)
		}
	}
	events, err := s.events(t, &entityv1.ReadEventsRequest{EntityType: "counter", EntityId: "a", ToSequence: 1})
	if err != nil || len(events) != 1 {
		t.Fatal(events, err)
	}
	e := events[0]
	if e.GetEventType() != "added" || e.GetCommandId() != "c1" || e.GetModuleDigest() != rpctest.ModuleDigest.String() ||
		strings.Join(e.GetTags(), " ") != "sum" || time.Since(e.GetRecordedAt().AsTime()) > time.Minute ||
		fmt.Sprint(e.GetJson().AsInterface()) != "map[amount:1]" {
		t.Errorf("event %v", e)
	}
	events, err = s.events(t, &entityv1.ReadEventsRequest{EntityType: "counter", EntityId: "a", ToSequence: 1, AsData: true})
	if err != nil || string(events[0].GetData()) != `{"amount":1}` {
		t.Errorf("as data: %v, %v", events, err)
	}
	for _, c := range []struct {
		request *entityv1.ReadEventsRequest
		code    connect.Code
	}{
		{&entityv1.ReadEventsRequest{EntityType: "nothing", EntityId: "a"}, connect.CodeNotFound},
		{&entityv1.ReadEventsRequest{EntityType: "counter"}, connect.CodeInvalidArgument},
		{&entityv1.ReadEventsRequest{EntityType: "counter", EntityId: "a\x7f"}, connect.CodeInvalidArgument},
	} {
		if _, err := s.events(t, c.request); connect.CodeOf(err) != c.code {
			t.Errorf("%v: %v, want %v", c.request, err, c.code)
		}
	}
}

// TestFollowEvents: a following stream sends the existing events, then new
// events, and ends at the requested sequence.
func TestFollowEvents(t *testing.T) {
	s := serve(t, edge.Options{})
	s.send(t, add("a", 1))
	stream, err := s.entities().ReadEvents(t.Context(), connect.NewRequest(&entityv1.ReadEventsRequest{
		EntityType: "counter", EntityId: "a", Follow: true, ToSequence: 50,
	}))
	if err != nil {
		t.Fatal(err)
	}
	for sequence := uint64(1); sequence <= 50; sequence++ {
		if !stream.Receive() || stream.Msg().GetSequence() != sequence {
			t.Fatalf("event %d: %v, %v", sequence, stream.Msg(), stream.Err())
		}
		if sequence < 50 {
			s.send(t, add("a", 1))
		}
	}
	if stream.Receive() || stream.Err() != nil {
		t.Errorf("after the wanted end: %v, %v", stream.Msg(), stream.Err())
	}
	stream.Close()
	eventually(t, "the watch to end", func() bool { return s.world.Watchers(counter("a")) == 0 })
}

// TestFollowEndsWithItsCaller: a caller that disconnects before there is any
// event leaves no resources behind.
func TestFollowEndsWithItsCaller(t *testing.T) {
	s := serve(t, edge.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := s.entities().ReadEvents(ctx, connect.NewRequest(&entityv1.ReadEventsRequest{
		EntityType: "counter", EntityId: "a", Follow: true,
	}))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watch", func() bool { return s.world.Watchers(counter("a")) == 1 })
	cancel()
	stream.Close()
	eventually(t, "the watch to end", func() bool { return s.world.Watchers(counter("a")) == 0 })
}

// TestStreamOfSlowReaderIsReset: a client that does not read its responses cannot hold the
// server's memory forever.
func TestStreamOfSlowReaderIsReset(t *testing.T) {
	s := serve(t, edge.Options{WriteStall: 100 * time.Millisecond})
	payload := &entityv1.SendCommandRequest_Data{Data: make([]byte, 900<<10)}
	for range 16 { // more than flow-control windows and socket buffers hold
		s.send(t, &entityv1.SendCommandRequest{EntityType: "blob", EntityId: "b", Command: "set", Payload: payload})
	}
	stream, err := s.entities().ReadEvents(t.Context(), connect.NewRequest(&entityv1.ReadEventsRequest{
		EntityType: "blob", EntityId: "b", Follow: true,
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	id := sharding.EntityID{Type: "blob", ID: "b"}
	eventually(t, "the stream to be cut", func() bool { return s.world.Watchers(id) == 0 })
}

func TestListEntities(t *testing.T) {
	s := serve(t, edge.Options{})
	for i := range 25 {
		s.send(t, add(fmt.Sprintf("id-%02d", i), 1))
	}
	s.send(t, add("other", 1))
	list := func(r *entityv1.ListEntitiesRequest) (ids []string, pages int) {
		t.Helper()
		r.EntityType = "counter"
		for {
			res, err := s.entities().ListEntities(t.Context(), connect.NewRequest(r))
			if err != nil {
				t.Fatal(err)
			}
			pages++
			if size := len(res.Msg.GetEntities()); r.GetPageSize() > 0 && size > int(r.GetPageSize()) {
				t.Errorf("a page of %d", size)
			}
			for _, e := range res.Msg.GetEntities() {
				if e.GetSequence() != 1 || e.GetStatus() != "active" {
					t.Errorf("line %v", e)
				}
				ids = append(ids, e.GetEntityId())
			}
			if r.PageToken = res.Msg.GetNextPageToken(); r.PageToken == "" {
				return ids, pages
			}
		}
	}
	whole, pages := list(&entityv1.ListEntitiesRequest{})
	if len(whole) != 26 || pages != 1 {
		t.Errorf("%d ids in %d pages", len(whole), pages)
	}
	for _, size := range []uint32{1, 7, 25, 26, 1000} {
		if got, _ := list(&entityv1.ListEntitiesRequest{PageSize: size}); strings.Join(got, " ") != strings.Join(whole, " ") {
			t.Errorf("in pages of %d: %v, want %v", size, got, whole)
		}
	}
	if got, _ := list(&entityv1.ListEntitiesRequest{IdPrefix: "id-1", PageSize: 3}); len(got) != 10 {
		t.Errorf("with a prefix: %v", got)
	}
	byShard := 0
	for shard := uint32(1); shard <= 4; shard++ {
		got, _ := list(&entityv1.ListEntitiesRequest{ShardId: shard, PageSize: 2})
		byShard += len(got)
	}
	if byShard != 26 {
		t.Errorf("%d ids over all shards", byShard)
	}
	page, err := s.entities().ListEntities(t.Context(), connect.NewRequest(&entityv1.ListEntitiesRequest{EntityType: "counter", PageSize: 3}))
	if err != nil {
		t.Fatal(err)
	}
	token := page.Msg.GetNextPageToken()
	for name, r := range map[string]*entityv1.ListEntitiesRequest{
		"shard that is not there": {EntityType: "counter", ShardId: 5},
		"token of nothing":        {EntityType: "counter", PageToken: "AAAA"},
		"token that is no base64": {EntityType: "counter", PageToken: "!"},
		"token of another filter": {EntityType: "counter", PageToken: token, IdPrefix: "id"},
		"token of another type":   {EntityType: "blob", PageToken: token},
	} {
		_, err := s.entities().ListEntities(t.Context(), connect.NewRequest(r))
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = s.entities().ListEntities(t.Context(), connect.NewRequest(&entityv1.ListEntitiesRequest{EntityType: "nothing"}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("unknown type: %v", err)
	}
}

// TestAnswerFollowsTheRequest: a reply has the same form, JSON or data, as
// the payload of the request.
func TestAnswerFollowsTheRequest(t *testing.T) {
	s := serve(t, edge.Options{})
	asJSON := &entityv1.SendCommandRequest_Json{Json: structpb.NewNumberValue(5)}
	res := s.send(t, &entityv1.SendCommandRequest{EntityType: "counter", EntityId: "a", Command: "echo", Payload: asJSON})
	if res.GetJson().GetNumberValue() != 5 || res.GetData() != nil {
		t.Errorf("json: %v", res)
	}
	asData := &entityv1.SendCommandRequest_Data{Data: []byte(" 5 ")}
	res = s.send(t, &entityv1.SendCommandRequest{EntityType: "counter", EntityId: "a", Command: "echo", Payload: asData})
	if string(res.GetData()) != "5" || res.GetJson() != nil {
		t.Errorf("data: %v", res)
	}
}
