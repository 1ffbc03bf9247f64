package edge_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge"
)

// echo makes a command that is charged cost bytes while it waits as a call.
func echo(t *testing.T, cost int) *entityv1.SendCommandRequest {
	t.Helper()
	const beside = 512 + len("echo") + len("id") + len("blob") + len("b")
	return &entityv1.SendCommandRequest{EntityType: "blob", EntityId: "b", Command: "echo", CommandId: "id",
		Payload: &entityv1.SendCommandRequest_Data{Data: bytes.Repeat([]byte{1}, cost-beside)}}
}

// queued waits until the world holds want requests.
func (s *site) queued(t *testing.T, want int) {
	t.Helper()
	for range 2000 {
		if now, _, _ := s.world.Queued(); now == want {
			return
		}
		time.Sleep(time.Millisecond)
	}
	now, _, _ := s.world.Queued()
	t.Fatalf("%d requests are queued, want %d", now, want)
}

// TestWaitingBytesBudgetRejectsCalls: calls fill the budget of waiting bytes. Beyond it,
// calls and commands of streams are rejected with the limit's error and
// nothing is done; answered calls make room.
func TestWaitingBytesBudgetRejectsCalls(t *testing.T) {
	const limit, each = 5 << 20, 900 << 10
	s := serve(t, edge.Options{MaxWaitingBytes: 2 * limit}) // one address may use half of it
	s.world.Pause()
	done := make(chan error, 8)
	send := func(id string) {
		m := echo(t, each)
		m.CommandId = id
		_, err := s.entities().SendCommand(t.Context(), connect.NewRequest(m))
		done <- err
	}
	// A call is charged more bytes while it is read and decoded than while
	// it waits.
	go send("a")
	s.queued(t, 1)
	go send("b")
	s.queued(t, 2)
	if send("c"); connect.CodeOf(<-done) != connect.CodeResourceExhausted {
		t.Error("a call past the limit is not refused")
	}
	// A large message ends the stream.
	stream := s.entities().SendCommandStream(t.Context())
	if err := stream.Send(message(1, echo(t, each))); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Receive(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a large message of a stream: %v", err)
	}
	stream.CloseRequest()
	s.world.Resume()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	send("c")
	if err := <-done; err != nil {
		t.Errorf("after all are answered: %v", err)
	}
}

// TestCommandsOfSmallMessageAreRejectedOneByOne: when the budget of waiting
// bytes is exhausted, small messages of a stream are still read, so that each of
// their commands gets an answer.
func TestCommandsOfSmallMessageAreRejectedOneByOne(t *testing.T) {
	const limit, each, sent = 256 << 10, 12 << 10, 40
	s := serve(t, edge.Options{MaxWaitingBytes: 2 * limit, MaxMessageBytes: 64 << 10})
	s.world.Pause()
	stream := s.entities().SendCommandStream(t.Context())
	for i := range sent {
		m := message(uint64(i+1), echo(t, each))
		m.Requests[0].Request.CommandId = fmt.Sprint(i)
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	refused := collect(t, stream, sent-limit/each)
	s.world.Resume()
	stream.CloseRequest()
	answers := append(refused, collect(t, stream, 0)...)
	if len(answers) != sent {
		t.Fatalf("%d answers, want %d", len(answers), sent)
	}
	full := 0
	for _, a := range answers {
		switch a.GetError().GetCode() {
		case "resource_exhausted":
			full++
		case "":
		default:
			t.Errorf("%v", a)
		}
	}
	if full < sent-limit/each || full == sent {
		t.Errorf("%d of %d are refused", full, sent)
	}
}

// TestStreamIsReadUpToItsByteLimit: a stream is read up to its limit of bytes, and no
// further until some commands are answered. Nothing is rejected. The test sends
// one byte less than the limit, exactly the limit, and one byte more.
func TestStreamIsReadUpToItsByteLimit(t *testing.T) {
	const limit = 256 << 10
	for _, tt := range []struct{ over, read int }{{-1, 2}, {0, 2}, {1, 1}} {
		t.Run(fmt.Sprint(tt.over), func(t *testing.T) {
			s := serve(t, edge.Options{MaxStreamBytes: limit})
			s.world.Pause()
			stream := s.entities().SendCommandStream(t.Context())
			size := func(m *entityv1.SendCommandStreamRequest) int { return proto.Size(m) + 512 }
			one := message(1, echo(t, limit/2))
			rest := limit + tt.over - size(one)
			two := message(2, echo(t, rest))
			two.Requests[0].Request.CommandId = "je" // a different id
			for size(two) != rest {
				data := two.Requests[0].Request.GetData()
				two.Requests[0].Request.Payload = &entityv1.SendCommandRequest_Data{Data: bytes.Repeat([]byte{1}, len(data)+rest-size(two))}
			}
			for _, m := range []*entityv1.SendCommandStreamRequest{one, two} {
				if err := stream.Send(m); err != nil {
					t.Fatal(err)
				}
			}
			s.queued(t, tt.read)
			time.Sleep(20 * time.Millisecond) // a message that is read too early would arrive
			s.queued(t, tt.read)
			s.world.Resume()
			stream.CloseRequest()
			for _, a := range collect(t, stream, 0) {
				if a.GetError() != nil {
					t.Errorf("%v", a)
				}
			}
			stream.CloseResponse()
		})
	}
}
