package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/request"
)

type sendStream = connect.BidiStreamForClient[entityv1.SendCommandStreamRequest, entityv1.SendCommandStreamResponse]

// add makes a command whose payload the world stores.
func add(id string, amount int) *entityv1.SendCommandRequest {
	return &entityv1.SendCommandRequest{
		EntityType: "counter", EntityId: id, Command: "add",
		Payload: &entityv1.SendCommandRequest_Data{Data: fmt.Appendf(nil, `{"amount":%d}`, amount)},
	}
}

func message(first uint64, requests ...*entityv1.SendCommandRequest) *entityv1.SendCommandStreamRequest {
	m := &entityv1.SendCommandStreamRequest{}
	for i, r := range requests {
		m.Requests = append(m.Requests, &entityv1.SendCommandStreamRequest_Item{CorrelationId: first + uint64(i), Request: r})
	}
	return m
}

// collect receives until n answers have arrived, or until the end if n is 0.
func collect(t testing.TB, stream *sendStream, n int) []*entityv1.SendCommandStreamResponse_Item {
	t.Helper()
	var out []*entityv1.SendCommandStreamResponse_Item
	for n == 0 || len(out) < n {
		m, err := stream.Receive()
		if n == 0 && errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("after %d answers: %v", len(out), err)
		}
		out = append(out, m.GetResponses()...)
	}
	return out
}

// sendOne sends one command over its own stream.
func (s *site) sendOne(t testing.TB, r *entityv1.SendCommandRequest, opts ...connect.ClientOption) *entityv1.SendCommandStreamResponse_Item {
	t.Helper()
	stream := s.entities(opts...).SendCommandStream(t.Context())
	if err := stream.Send(message(7, r)); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	answers := collect(t, stream, 0)
	stream.CloseResponse()
	if len(answers) != 1 || answers[0].GetCorrelationId() != 7 {
		t.Fatalf("answers %v", answers)
	}
	return answers[0]
}

// TestStreamLooksUpUnknownTypeOncePerMessage: finding out whether a type exists
// may take a while, and one message can name it a thousand times, so a stream
// looks it up once per message. The next message looks it up again.
func TestStreamLooksUpUnknownTypeOncePerMessage(t *testing.T) {
	s := serve(t, edge.Options{})
	stream := s.entities().SendCommandStream(t.Context())
	strange := add("a", 1)
	strange.EntityType = "nothing"
	for n := 1; n <= 2; n++ {
		if err := stream.Send(message(0, strange, add("a", 1), strange, strange)); err != nil {
			t.Fatal(err)
		}
		missing := 0
		for _, a := range collect(t, stream, 4) {
			if a.GetError().GetCode() == "not_found" {
				missing++
			}
		}
		if looks := s.world.Looks(); missing != 3 || looks != n {
			t.Errorf("%d messages: %d commands found no type, in %d look-ups", n, missing, looks)
		}
	}
	stream.CloseRequest()
	collect(t, stream, 0)
	stream.CloseResponse()
}

// TestStreamProtocols: the stream works with every protocol and encoding,
// and a failed command does not affect other commands.
func TestStreamProtocols(t *testing.T) {
	s := serve(t, edge.Options{})
	for name, opts := range protocols() {
		if strings.HasPrefix(name, "grpc-web") {
			continue // browsers have no bidirectional streams
		}
		t.Run(name, func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			stream := s.entities(opts...).SendCommandStream(t.Context())
			mismatch := add(id, 1)
			mismatch.ExpectedSequence = new(uint64)
			*mismatch.ExpectedSequence = 40
			asJSON := add(id, 0)
			asJSON.Payload = &entityv1.SendCommandRequest_Json{Json: structpb.NewStructValue(&structpb.Struct{
				Fields: map[string]*structpb.Value{"amount": structpb.NewNumberValue(5)},
			})}
			requests := []*entityv1.SendCommandRequest{
				add(id, 1), add(id, 2), mismatch,
				{EntityType: "counter", EntityId: id, Command: "reject"},
				{EntityType: "nothing", EntityId: id, Command: "add"},
				{EntityType: "counter", EntityId: "a\x01b", Command: "add"},
				{EntityType: "blob", EntityId: id, Command: "set", Payload: &entityv1.SendCommandRequest_Json{Json: structpb.NewNullValue()}},
				nil,
				asJSON,
			}
			if err := stream.Send(message(100, requests...)); err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&entityv1.SendCommandStreamRequest{}); err != nil { // an empty message
				t.Fatal(err)
			}
			stream.CloseRequest()
			got := make(map[uint64]string)
			for _, a := range collect(t, stream, 0) {
				text := a.GetError().GetCode()
				for _, d := range a.GetError().GetDetails() {
					m, err := d.UnmarshalNew()
					if err != nil {
						t.Fatal(err)
					}
					text += fmt.Sprintf(" %T", m)
				}
				if r := a.GetResponse(); r != nil {
					text = fmt.Sprintf("%s%v at %d from %s", r.GetData(), r.GetJson().AsInterface(), r.GetSequence(), r.GetNodeId())
				}
				got[a.GetCorrelationId()] = text
			}
			for i, want := range []string{
				`{"total":1}<nil> at 1 from n1`,
				`{"total":3}<nil> at 2 from n1`,
				"failed_precondition *entityv1.SequenceMismatch",
				"failed_precondition *entityv1.Rejection",
				"not_found",
				"invalid_argument",
				"invalid_argument",
				"invalid_argument",
				`map[total:8] at 3 from n1`,
			} {
				if got[uint64(100+i)] != want {
					t.Errorf("item %d: got %q, want %q", i, got[uint64(100+i)], want)
				}
			}
			if len(got) != len(requests) {
				t.Errorf("%d answers", len(got))
			}
		})
	}
}

// TestStreamOrder: commands to one entity run in the order of arrival, with one
// Submit for each message.
func TestStreamOrder(t *testing.T) {
	s := serve(t, edge.Options{})
	const entities, each = 7, 300
	stream := s.entities().SendCommandStream(t.Context())
	messages := 0
	go func() {
		var batch []*entityv1.SendCommandRequest
		for i := range each {
			for e := range entities {
				batch = append(batch, add(fmt.Sprint("e", e), i))
			}
			if i%10 == 9 {
				stream.Send(message(0, batch...))
				batch = nil
			}
		}
		stream.CloseRequest()
	}()
	messages = each / 10
	if got := len(collect(t, stream, 0)); got != entities*each {
		t.Fatalf("%d answers", got)
	}
	for e := range entities {
		for i, payload := range s.world.Commands(counter(fmt.Sprint("e", e))) {
			if payload != fmt.Sprintf(`{"amount":%d}`, i) {
				t.Fatalf("entity %d ran %s as number %d", e, payload, i)
			}
		}
	}
	if _, _, batches := s.world.Queued(); batches != messages {
		t.Errorf("%d batches of %d messages", batches, messages)
	}
}

// TestStreamStopsReadingWhenFull: commands in flight are limited, and reading
// continues when some are answered.
func TestStreamStopsReadingWhenFull(t *testing.T) {
	const bound, messages, each = 64, 40, 8
	s := serve(t, edge.Options{MaxStreamInFlight: bound})
	s.world.Pause()
	stream := s.entities().SendCommandStream(t.Context())
	sent := make(chan error, 1)
	go func() {
		for i := range messages {
			var batch []*entityv1.SendCommandRequest
			for range each {
				batch = append(batch, add("a", 1))
			}
			if err := stream.Send(message(uint64(i*each), batch...)); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseRequest()
	}()
	eventually(t, "the stream to fill", func() bool { now, _, _ := s.world.Queued(); return now == bound })
	s.world.Resume()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if got := len(collect(t, stream, 0)); got != messages*each {
		t.Errorf("%d answers", got)
	}
	if _, most, _ := s.world.Queued(); most != bound {
		t.Errorf("%d commands were in flight, the bound is %d", most, bound)
	}
}

// TestStreamMessageLimits: a message of too many commands or bytes ends the
// stream, after the messages before it were answered.
func TestStreamMessageLimits(t *testing.T) {
	s := serve(t, edge.Options{MaxMessageBytes: 512 << 10})
	for _, n := range []int{1023, 1024, 1025} {
		stream := s.entities().SendCommandStream(t.Context())
		stream.Send(message(0, add("a", 1)))
		requests := make([]*entityv1.SendCommandRequest, n)
		for i := range requests {
			requests[i] = add("a", 1)
		}
		stream.Send(message(1, requests...))
		stream.CloseRequest()
		answers, err := 0, error(nil)
		for err == nil {
			var m *entityv1.SendCommandStreamResponse
			m, err = stream.Receive()
			answers += len(m.GetResponses())
		}
		if n <= 1024 && (!errors.Is(err, io.EOF) || answers != n+1) {
			t.Errorf("%d commands: %d answers, %v", n, answers, err)
		}
		if n > 1024 && (connect.CodeOf(err) != connect.CodeInvalidArgument || answers != 1) {
			t.Errorf("%d commands: %d answers, %v", n, answers, err)
		}
	}
	stream := s.entities().SendCommandStream(t.Context())
	stream.Send(message(0, &entityv1.SendCommandRequest{EntityType: "blob", Payload: &entityv1.SendCommandRequest_Data{Data: make([]byte, 1<<20)}}))
	if _, err := stream.Receive(); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a message over the limit: %v", err)
	}
}

// TestStreamExpiry: a command without an outcome at its deadline is answered
// with an error, does not delay others, and its late outcome does no harm.
func TestStreamExpiry(t *testing.T) {
	s := serve(t, edge.Options{DefaultDeadline: 2 * time.Second}) // enough time for the last command
	s.world.Pause()
	stream := s.entities().SendCommandStream(t.Context())
	stream.Send(message(1, add("a", 1), add("a", 2), &entityv1.SendCommandRequest{EntityType: "nothing", EntityId: "x", Command: "y"}))
	codes := make(map[string]int)
	for _, a := range collect(t, stream, 3) {
		codes[a.GetError().GetCode()]++
	}
	if codes["deadline_exceeded"] != 2 || codes["not_found"] != 1 {
		t.Errorf("answers %v", codes)
	}
	s.world.Resume()
	stream.Send(message(10, add("b", 1)))
	if a := collect(t, stream, 1)[0]; a.GetCorrelationId() != 10 || a.GetResponse().GetSequence() != 1 {
		t.Errorf("after the expiry: %v", a)
	}
	stream.CloseRequest()
	if rest := collect(t, stream, 0); len(rest) != 0 {
		t.Errorf("expired commands were answered twice: %v", rest)
	}
}

// TestStreamClientGone: the completions of commands whose client has
// disconnected are dropped.
func TestStreamClientGone(t *testing.T) {
	s := serve(t, edge.Options{})
	s.world.Pause()
	ctx, cancel := context.WithCancel(t.Context())
	stream := s.entities().SendCommandStream(ctx)
	stream.Send(message(1, add("a", 1), add("a", 2)))
	eventually(t, "the commands to arrive", func() bool { now, _, _ := s.world.Queued(); return now == 2 })
	cancel()
	stream.CloseResponse()
	s.world.Resume()
	eventually(t, "the commands to run", func() bool { return s.world.Total("a") == 3 })
	if a := s.sendOne(t, add("a", 4)); string(a.GetResponse().GetData()) != `{"total":7}` {
		t.Errorf("another stream: %v", a)
	}
}

// TestStreamsAtATime: a stream over the limit is rejected with an error that
// allows a retry.
func TestStreamsAtATime(t *testing.T) {
	s := serve(t, edge.Options{MaxStreams: 2, MaxAddressStreams: 2})
	var open []*sendStream
	for range 2 {
		stream := s.entities().SendCommandStream(t.Context())
		stream.Send(message(1, add("a", 1)))
		collect(t, stream, 1)
		open = append(open, stream)
	}
	third := s.entities().SendCommandStream(t.Context())
	third.Send(message(1, add("a", 1)))
	if _, err := third.Receive(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("the third stream: %v", err)
	}
	open[0].CloseRequest()
	collect(t, open[0], 0)
	if a := s.sendOne(t, add("a", 1)); a.GetResponse() == nil {
		t.Errorf("after one ended: %v", a)
	}
	open[1].CloseRequest()
	collect(t, open[1], 0)
}

// TestStreamLargeAnswers: answers are split into messages that clients accept.
func TestStreamLargeAnswers(t *testing.T) {
	s := serve(t, edge.Options{})
	stream := s.entities(connect.WithReadMaxBytes(300 << 10)).SendCommandStream(t.Context())
	payload := strings.Repeat("x", 100<<10)
	for i := range 20 {
		stream.Send(message(uint64(i), &entityv1.SendCommandRequest{
			EntityType: "blob", EntityId: "b", Command: "set", Payload: &entityv1.SendCommandRequest_Data{Data: []byte(payload)},
		}))
	}
	stream.CloseRequest()
	for _, a := range collect(t, stream, 0) {
		if string(a.GetResponse().GetData()) != payload {
			t.Errorf("answer %d has %d bytes: %v", a.GetCorrelationId(), len(a.GetResponse().GetData()), a.GetError())
		}
	}
}

// TestStreamServerIDs: a command without an id gets a unique one.
func TestStreamServerIDs(t *testing.T) {
	s := serve(t, edge.Options{})
	stream := s.entities().SendCommandStream(t.Context())
	requests := make([]*entityv1.SendCommandRequest, 500)
	for i := range requests {
		requests[i] = add("a", 1)
	}
	stream.Send(message(0, requests...))
	stream.CloseRequest()
	for _, a := range collect(t, stream, 0) {
		if a.GetResponse().GetDuplicate() || a.GetError() != nil {
			t.Fatalf("answer %v", a)
		}
	}
	if got := s.world.Total("a"); got != 500 {
		t.Errorf("total %d", got)
	}
}

// TestStreamFailures: errors of the runtime become the outcomes of their
// commands.
func TestStreamFailures(t *testing.T) {
	s := serve(t, edge.Options{})
	s.world.Fail = map[string]error{"busy": request.ErrBusy}
	a := s.sendOne(t, &entityv1.SendCommandRequest{EntityType: "counter", EntityId: "a", Command: "busy"})
	if a.GetError().GetCode() != "resource_exhausted" || a.GetError().GetMessage() != request.ErrBusy.Error() {
		t.Errorf("answer %v", a)
	}
}
