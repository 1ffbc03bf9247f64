package admission_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/procedure"
)

// arrived has the message of a call that has been decoded and does not end before
// the test reads from ended.
type arrived struct {
	message protoreflect.Message
	ended   chan struct{}
}

type stopped chan arrived

func (h stopped) wait(ctx context.Context, m protoreflect.Message) {
	a := arrived{m, make(chan struct{})}
	select {
	case h <- a:
	case <-ctx.Done():
		return
	}
	select {
	case <-a.ended:
	case <-ctx.Done():
	}
}

type stoppedEntities struct {
	entityv1connect.UnimplementedEntityServiceHandler
	stopped
}

func (h stoppedEntities) SubscribeEvents(ctx context.Context, r *connect.Request[entityv1.SubscribeEventsRequest], _ *connect.ServerStream[entityv1.SubscribeEventsResponse]) error {
	h.wait(ctx, r.Msg.ProtoReflect())
	return nil
}

type stoppedWorkflows struct {
	workflowv1connect.UnimplementedWorkflowServiceHandler
	stopped
}

func (h stoppedWorkflows) GetWorkflow(ctx context.Context, r *connect.Request[workflowv1.GetWorkflowRequest]) (*connect.Response[workflowv1.GetWorkflowResponse], error) {
	h.wait(ctx, r.Msg.ProtoReflect())
	return connect.NewResponse(&workflowv1.GetWorkflowResponse{}), nil
}

// TestLongCallsAreChargedForTheirDecodedMessage: a message that repeats a field
// needs much memory while it is decoded, and little afterwards. A call that lasts
// long is charged only the rest, and does not keep unknown fields, except few
// bytes, which may be fields of the previous release.
func TestLongCallsAreChargedForTheirDecodedMessage(t *testing.T) {
	const limit, most = 256 << 20, 16 << 10
	waiting, calls := admission.NewWaiting(limit), make(stopped)
	mux := http.NewServeMux()
	mux.Handle(entityv1connect.NewEntityServiceHandler(stoppedEntities{stopped: calls}, connect.WithInterceptors(admission.Decoding{})))
	mux.Handle(workflowv1connect.NewWorkflowServiceHandler(stoppedWorkflows{stopped: calls}, connect.WithInterceptors(admission.Decoding{})))
	server := httptest.NewServer(admission.Bodies(mux, admission.BodyOptions{MessageBytes: 1 << 20, Waiting: waiting, Decodes: admission.NewDecodes(4),
		Services: procedure.Services(), Log: slog.New(slog.DiscardHandler)}))
	defer server.Close()
	repeated := func(field protowire.Number, n int) []byte {
		return bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), nil), n)
	}
	unknown := func(size int) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, 900, protowire.BytesType), make([]byte, size))
	}
	for _, tt := range []struct {
		name, path, kind string
		message          []byte
		unknown          int // bytes of unknown fields that are kept
	}{
		{"stream", entityv1connect.EntityServiceSubscribeEventsProcedure, "application/grpc", repeated(2, 500_000), 0},
		{"stream with unknown fields", entityv1connect.EntityServiceSubscribeEventsProcedure, "application/grpc", append(repeated(2, 500_000), unknown(32<<10)...), 0},
		{"wait", workflowv1connect.WorkflowServiceGetWorkflowProcedure, "application/proto", repeated(3, 500_000), 0},
		{"wait with unknown fields", workflowv1connect.WorkflowServiceGetWorkflowProcedure, "application/proto", unknown(1 << 19), 0},
		{"wait with few unknown fields", workflowv1connect.WorkflowServiceGetWorkflowProcedure, "application/proto", unknown(8), len(unknown(8))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := tt.message
			if tt.kind == "application/grpc" {
				body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
			}
			answered := make(chan error, 1)
			go func() {
				res, err := http.Post(server.URL+tt.path, tt.kind, bytes.NewReader(body))
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				answered <- err
			}()
			var call arrived
			select {
			case call = <-calls:
			case err := <-answered:
				t.Fatalf("the call was rejected: %v", err)
			}
			if n := waiting.UsedBytes(); n <= 0 || n > most {
				t.Errorf("%d bytes are charged during the call, want at most %d", n, most)
			}
			if n := len(call.message.GetUnknown()); n != tt.unknown {
				t.Errorf("the message keeps %d bytes of unknown fields, want %d", n, tt.unknown)
			}
			close(call.ended)
			if err := <-answered; err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(time.Minute); waiting.UsedBytes() != 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d bytes are charged after the call", waiting.UsedBytes())
				}
			}
		})
	}
}
