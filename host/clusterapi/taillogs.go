package clusterapi

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// logNodeTime limits the time in which a different node must send the lines
// that it has stored.
const logNodeTime = 10 * time.Second

// logTail implements TailLogs. All fields are required.
type logTail struct {
	allNodes
	Lines *modules.GuestLines // the lines of this node
	Types types
}

// TailLogs sends the log lines of a type that nodes have stored and, on
// request, new lines as they come. It fetches the next message only after it
// has sent the previous message. If the reader is slow, nodes overwrite
// lines that were not sent yet, and the reader gets the number of lost
// lines.
func (s *logTail) TailLogs(ctx context.Context, r *connect.Request[clusterv1.TailLogsRequest], out *connect.ServerStream[clusterv1.TailLogsResponse]) error {
	if err := s.tail(ctx, r.Msg, out); err != nil {
		return status.Public(s.Log, err)
	}
	return nil
}

func (s *logTail) tail(ctx context.Context, r *clusterv1.TailLogsRequest, out *connect.ServerStream[clusterv1.TailLogsResponse]) error {
	if err := s.Types.CheckType(ctx, r.GetEntityType()); s.Whole(ctx) && err != nil {
		return err
	}
	open, err := s.Streams.Enter(ctx)
	if err != nil {
		return err
	}
	defer open.Leave()
	own, err := s.Lines.Follow(sharding.EntityID{Type: r.GetEntityType(), ID: r.GetEntityId()})
	if errors.Is(err, modules.ErrManyFollowers) {
		return request.ErrOverloaded
	}
	defer own.Close()
	call := streamCall[clusterv1.TailLogsResponse]{
		allNodes: &s.allNodes, Continues: r.GetFollow(), NodeTime: logNodeTime,
		Here: func(ctx context.Context, send func(*clusterv1.TailLogsResponse) bool) { s.local(ctx, r, own, send) },
		There: func(ctx context.Context, c clusterv1connect.ClusterServiceClient) (*connect.ServerStreamForClient[clusterv1.TailLogsResponse], error) {
			return c.TailLogs(ctx, connect.NewRequest(r))
		},
		Missing: func(node string) *clusterv1.TailLogsResponse {
			return &clusterv1.TailLogsResponse{MissingNodes: []string{node}}
		},
	}
	return call.Run(ctx, open, out)
}

// local sends the lines of this node.
func (s *logTail) local(ctx context.Context, r *clusterv1.TailLogsRequest, from *modules.LineFollower, send func(*clusterv1.TailLogsResponse) bool) {
	for {
		lines, lost := from.Read()
		if len(lines) > 0 || lost > 0 {
			m := &clusterv1.TailLogsResponse{NodeId: s.Self, Lost: lost}
			for _, l := range lines {
				m.Lines = append(m.Lines, &clusterv1.TailLogsResponse_Line{
					WrittenAt: timestamppb.New(l.At), EntityId: l.Entity.ID, Level: l.Level.String(), Text: l.Text, ModuleDigest: l.Module.String(),
				})
			}
			if !send(m) {
				return
			}
			continue
		}
		if !r.GetFollow() {
			return
		}
		select {
		case <-from.Wake():
		case <-ctx.Done():
			return
		}
	}
}
