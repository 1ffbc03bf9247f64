package rpc_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/rpc"
)

// echo is a command that counts for so many bytes while it waits as a call.
func echo(t *testing.T, cost int) *entityv1.SendRequest {
	t.Helper()
	const beside = 512 + len("echo") + len("id") + len("blob") + len("b")
	return &entityv1.SendRequest{EntityType: "blob", EntityId: "b", Command: "echo", CommandId: "id",
		Payload: &entityv1.SendRequest_Data{Data: bytes.Repeat([]byte{1}, cost-beside)}}
}

// queued waits until the world holds so many requests.
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

// TestBytesThatWaitOnTheNode: calls fill the node's bytes to one below the
// limit, to the limit, and past it, where they and streams are refused by name
// and nothing is done; what was answered makes room.
func TestBytesThatWaitOnTheNode(t *testing.T) {
	const limit, first = 1 << 20, 512 << 10
	for _, tt := range []struct {
		second int
		ok     bool
	}{{limit - first - 1, true}, {limit - first, true}, {limit - first + 1, false}} {
		t.Run(fmt.Sprint(first+tt.second-limit), func(t *testing.T) {
			s := serve(t, rpc.Options{MaxWaitingBytes: limit})
			s.world.Pause()
			send := func(cost int) chan error {
				done := make(chan error, 1)
				go func() {
					_, err := s.entities().Send(t.Context(), connect.NewRequest(echo(t, cost)))
					done <- err
				}()
				return done
			}
			one := send(first)
			s.queued(t, 1)
			two := send(tt.second)
			if tt.ok {
				s.queued(t, 2)
				if item := s.sendOne(t, echo(t, 4096)); item.GetError().GetCode() != "resource_exhausted" {
					t.Errorf("a stream beside: %v", item)
				}
			} else if err := <-two; connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Errorf("past the limit: %v", err)
			} else {
				two <- nil
			}
			s.world.Resume()
			if err := errors.Join(<-one, <-two); err != nil {
				t.Error(err)
			}
			if err := <-send(limit); err != nil {
				t.Errorf("after all are answered: %v", err)
			}
		})
	}
}

// TestBytesOfAStreamThatWait: a stream is read up to its bytes, at one below
// them and at them, and no further until some are answered; nothing is refused.
func TestBytesOfAStreamThatWait(t *testing.T) {
	const limit = 256 << 10
	for _, tt := range []struct{ over, read int }{{-1, 2}, {0, 2}, {1, 1}} {
		t.Run(fmt.Sprint(tt.over), func(t *testing.T) {
			s := serve(t, rpc.Options{MaxStreamBytes: limit})
			s.world.Pause()
			stream := s.entities().SendStream(t.Context())
			size := func(m *entityv1.SendStreamRequest) int { return proto.Size(m) + 512 }
			one := message(1, echo(t, limit/2))
			rest := limit + tt.over - size(one)
			two := message(2, echo(t, rest))
			two.Requests[0].Request.CommandId = "je" // another
			for size(two) != rest {
				data := two.Requests[0].Request.GetData()
				two.Requests[0].Request.Payload = &entityv1.SendRequest_Data{Data: bytes.Repeat([]byte{1}, len(data)+rest-size(two))}
			}
			for _, m := range []*entityv1.SendStreamRequest{one, two} {
				if err := stream.Send(m); err != nil {
					t.Fatal(err)
				}
			}
			s.queued(t, tt.read)
			time.Sleep(20 * time.Millisecond) // one that is read too early would come
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
