package taillogs

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/guestlines"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/rpc/status"
	"github.com/hostd/hostd/sharding"
)

const (
	// nodeTime bounds how long another node may take for the lines that it has.
	nodeTime = 10 * time.Second
	// lookEvery is how often a call that follows looks for nodes, and nodePause
	// how long it leaves one alone that did not answer.
	lookEvery = 2 * time.Second
	nodePause = time.Second
)

// Service answers TailLogs. All its members are required.
type Service struct {
	Self  string
	Lines *guestlines.Lines // of this node
	// Members names the nodes of the cluster.
	Members func(ctx context.Context) ([]sharding.NodeID, error)
	// Known fails where there is no such type.
	Known   func(ctx context.Context, entityType string) error
	Proxy   *leaderproxy.Proxy
	Streams *admission.Streams
	Log     *slog.Logger
}

// TailLogs sends the lines of a type that nodes have, and where that is asked
// for those that come. It takes the next message when the one before is sent:
// who reads slowly has nodes overwrite what was not sent yet, and is told how
// many lines that were.
func (s *Service) TailLogs(ctx context.Context, r *connect.Request[clusterv1.TailLogsRequest], out *connect.ServerStream[clusterv1.TailLogsResponse]) error {
	if err := s.tail(ctx, r.Msg, out); err != nil {
		return status.Public(s.Log, err)
	}
	return nil
}

func (s *Service) tail(ctx context.Context, r *clusterv1.TailLogsRequest, out *connect.ServerStream[clusterv1.TailLogsResponse]) error {
	whole := !leaderproxy.FromPeer(ctx) && !s.Proxy.Alone()
	if err := s.Known(ctx, r.GetEntityType()); whole && err != nil {
		return err
	}
	open, err := s.Streams.Enter(ctx)
	if err != nil {
		return err
	}
	defer open.Leave()
	own, err := s.Lines.Follow(sharding.EntityID{Type: r.GetEntityType(), ID: r.GetEntityId()})
	if errors.Is(err, guestlines.ErrManyFollowers) {
		return request.ErrOverloaded
	}
	defer own.Close()
	// A client waits for the headers, which would come with the first line.
	if err := out.Send(nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t := &tailing{Service: s, request: r, messages: make(chan *clusterv1.TailLogsResponse)}
	ended := make(chan struct{})
	t.all.Go(func() { t.local(ctx, own) })
	if whole {
		t.all.Go(func() { t.others(ctx) })
	}
	go func() { t.all.Wait(); close(ended) }()
	defer func() { cancel(nil); <-ended }()
	for {
		select {
		case m := <-t.messages:
			open.BeginWrite()
			err := out.Send(m)
			open.EndWrite()
			if err != nil {
				return err
			}
		case <-ended:
			return context.Cause(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.Streams.Stopping():
			return admission.ErrStopping
		}
	}
}

// tailing is one call.
type tailing struct {
	*Service
	request  *clusterv1.TailLogsRequest
	messages chan *clusterv1.TailLogsResponse
	all      sync.WaitGroup
}

// send hands a message over to the call.
func (t *tailing) send(ctx context.Context, m *clusterv1.TailLogsResponse) bool {
	select {
	case t.messages <- m:
		return true
	case <-ctx.Done():
		return false
	}
}

// local sends the lines of this node.
func (t *tailing) local(ctx context.Context, from *guestlines.Follower) {
	for {
		lines, lost := from.Read()
		if len(lines) > 0 || lost > 0 {
			m := &clusterv1.TailLogsResponse{NodeId: t.Self, Lost: lost}
			for _, l := range lines {
				m.Lines = append(m.Lines, &clusterv1.TailLogsResponse_Line{
					WrittenAt: timestamppb.New(l.At), EntityId: l.Entity.ID, Level: l.Level.String(), Text: l.Text, ModuleDigest: l.Module.String(),
				})
			}
			if !t.send(ctx, m) {
				return
			}
			continue
		}
		if !t.request.GetFollow() {
			return
		}
		select {
		case <-from.Wake():
		case <-ctx.Done():
			return
		}
	}
}

// others sends the lines of all other nodes, of those too that come later.
func (t *tailing) others(ctx context.Context) {
	known := map[sharding.NodeID]bool{sharding.NodeID(t.Self): true}
	for {
		members, err := t.Members(ctx)
		if err != nil {
			members = nil // a call that follows looks again
		}
		for _, node := range members {
			if !known[node] {
				known[node] = true
				t.all.Go(func() { t.node(ctx, node) })
			}
		}
		if !t.request.GetFollow() || !pause(ctx, lookEvery) {
			return
		}
	}
}

// node sends the lines of another node, and says once that it does not answer.
func (t *tailing) node(ctx context.Context, node sharding.NodeID) {
	missing := false
	for {
		err := t.once(ctx, node, func() { missing = false })
		if ctx.Err() != nil || err == nil && !t.request.GetFollow() {
			return
		}
		if !missing {
			missing = true
			if !t.send(ctx, &clusterv1.TailLogsResponse{MissingNodes: []string{string(node)}}) {
				return
			}
		}
		if !t.request.GetFollow() || !pause(ctx, nodePause) {
			return
		}
	}
}

// once asks another node once. It calls heard when it answers.
func (t *tailing) once(ctx context.Context, node sharding.NodeID, heard func()) error {
	if !t.request.GetFollow() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, nodeTime)
		defer cancel()
	}
	c, err := t.Proxy.Cluster(node)
	if err != nil {
		return err
	}
	in, err := c.TailLogs(ctx, connect.NewRequest(t.request))
	if err != nil {
		return err
	}
	defer in.Close()
	for in.Receive() {
		heard()
		if !t.send(ctx, in.Msg()) {
			return ctx.Err()
		}
	}
	return in.Err()
}

// pause waits, and is false when ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
