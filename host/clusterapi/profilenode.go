package clusterapi

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

const (
	// standardProfile is the duration of a profile if the caller sets none.
	standardProfile = 10 * time.Second
	// partBytes is the maximum number of bytes of a profile in one message.
	partBytes = 256 << 10
	// nodeTime is how much longer than the profile itself a different node may
	// take.
	nodeTime = 30 * time.Second
)

// nodeProfiler implements ProfileNode. All fields are required.
type nodeProfiler struct {
	Self    string
	Nodes   memberLister
	Unknown error // the error for a node that is not a member
	Proxy   *leaderproxy.Proxy
	Streams *admission.Streams
	Log     *slog.Logger
}

// ProfileNode sends a profile of a node's process, in chunks.
func (s *nodeProfiler) ProfileNode(ctx context.Context, r *connect.Request[clusterv1.ProfileNodeRequest], out *connect.ServerStream[clusterv1.ProfileNodeResponse]) error {
	if err := s.profile(ctx, r.Msg, out); err != nil {
		return status.Public(s.Log, err)
	}
	return nil
}

func (s *nodeProfiler) profile(ctx context.Context, r *clusterv1.ProfileNodeRequest, out *connect.ServerStream[clusterv1.ProfileNodeResponse]) error {
	open, err := s.Streams.Enter(ctx)
	if err != nil {
		return err
	}
	defer open.Leave()
	// Send the headers now, because the first message may arrive late.
	if err := out.Send(nil); err != nil {
		return err
	}
	if r.GetDuration().AsDuration() == 0 {
		r.Duration = durationpb.New(standardProfile)
	}
	ctx, cancel := context.WithTimeout(ctx, r.GetDuration().AsDuration()+nodeTime)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-s.Streams.Stopping():
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(); <-ended }()
	send := func(m *clusterv1.ProfileNodeResponse) error {
		open.BeginWrite()
		defer open.EndWrite()
		return out.Send(m)
	}
	if r.GetNodeId() != "" && r.GetNodeId() != s.Self {
		return s.relay(ctx, r, send)
	}
	s.Log.Info("taking a profile of the node", "kind", r.GetKind().String(), "duration", r.GetDuration().AsDuration())
	profile, err := takeProfile(ctx, r.GetKind(), r.GetDuration().AsDuration())
	if err != nil {
		return err
	}
	for part := range slices.Chunk(profile, partBytes) {
		if err := send(&clusterv1.ProfileNodeResponse{NodeId: s.Self, Part: part}); err != nil {
			return err
		}
	}
	return nil
}

// relay relays the profile of a different node.
func (s *nodeProfiler) relay(ctx context.Context, r *clusterv1.ProfileNodeRequest, send func(*clusterv1.ProfileNodeResponse) error) error {
	members, err := s.Nodes.Members(ctx)
	if err != nil {
		return err
	}
	if leaderproxy.FromPeer(ctx) || s.Proxy.Alone() || !slices.Contains(members, sharding.NodeID(r.GetNodeId())) {
		return s.Unknown
	}
	c, err := s.Proxy.Cluster(sharding.NodeID(r.GetNodeId()))
	if err != nil {
		return err
	}
	in, err := c.ProfileNode(ctx, connect.NewRequest(r))
	if err != nil {
		return leaderproxy.CallerError(err)
	}
	defer in.Close()
	for in.Receive() {
		if err := send(in.Msg()); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return leaderproxy.CallerError(err)
	}
	return nil
}
