package clusterapi

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// profileMessageBytes is the approximate limit of names and stacks in one message, in
// bytes.
const profileMessageBytes = 256 << 10

// Sampler profiles the guests of this node.
type Sampler interface {
	// Profile samples the guests of a type for the given duration.
	Profile(ctx context.Context, entityType string, long time.Duration) ([]modules.GuestStack, error)
}

// guestProfiler implements ProfileGuests. All fields are required.
type guestProfiler struct {
	Self    string
	Sampler Sampler
	Types   types
	Nodes   memberLister
	Proxy   *leaderproxy.Proxy
	Streams *admission.Streams
	Log     *slog.Logger
}

// ProfileGuests profiles the guests of a type on all nodes at the same time, and
// sends the result of each.
func (s *guestProfiler) ProfileGuests(ctx context.Context, r *connect.Request[clusterv1.ProfileGuestsRequest], out *connect.ServerStream[clusterv1.ProfileGuestsResponse]) error {
	if err := s.profile(ctx, r.Msg, out); err != nil {
		return status.Public(s.Log, err)
	}
	return nil
}

func (s *guestProfiler) profile(ctx context.Context, r *clusterv1.ProfileGuestsRequest, out *connect.ServerStream[clusterv1.ProfileGuestsResponse]) error {
	whole := !leaderproxy.FromPeer(ctx) && !s.Proxy.Alone()
	if err := s.Types.CheckType(ctx, r.GetEntityType()); !leaderproxy.FromPeer(ctx) && err != nil {
		return err
	}
	var others []sharding.NodeID
	if whole {
		members, err := s.Nodes.Members(ctx)
		if err != nil {
			return err
		}
		others = slices.DeleteFunc(members, func(n sharding.NodeID) bool { return string(n) == s.Self })
	}
	open, err := s.Streams.Enter(ctx)
	if err != nil {
		return err
	}
	defer open.Leave()
	if r.GetDuration().AsDuration() == 0 {
		r.Duration = durationpb.New(standardProfile)
	}
	long := r.GetDuration().AsDuration()
	ctx, cancel := context.WithTimeout(ctx, long+nodeTime)
	m := &measuring{messages: make(chan *clusterv1.ProfileGuestsResponse)}
	ended := make(chan struct{})
	m.all.Go(func() { m.here(ctx, s, r, long) })
	for _, node := range others {
		m.all.Go(func() { m.there(ctx, s, r, node) })
	}
	go func() { m.all.Wait(); close(ended) }()
	defer func() { cancel(); <-ended }()
	for {
		select {
		case part := <-m.messages:
			open.BeginWrite()
			err := out.Send(part)
			open.EndWrite()
			if err != nil {
				return err
			}
		case <-ended:
			return m.failed
		case <-s.Streams.Stopping():
			return admission.ErrStopping
		}
	}
}

// measuring is one call of ProfileGuests.
type measuring struct {
	messages chan *clusterv1.ProfileGuestsResponse
	all      sync.WaitGroup
	failed   error // error of this node; read only after all nodes have ended
}

func (m *measuring) send(ctx context.Context, part *clusterv1.ProfileGuestsResponse) error {
	select {
	case m.messages <- part:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// here profiles this node.
func (m *measuring) here(ctx context.Context, s *guestProfiler, r *clusterv1.ProfileGuestsRequest, long time.Duration) {
	stacks, err := s.Sampler.Profile(ctx, r.GetEntityType(), long)
	for part := range profileParts(s.Self, stacks) {
		if err == nil {
			err = m.send(ctx, part)
		}
	}
	m.failed = err
}

// there lets a different node profile its guests, and reports the node as
// missing if it fails.
func (m *measuring) there(ctx context.Context, s *guestProfiler, r *clusterv1.ProfileGuestsRequest, node sharding.NodeID) {
	err := func() error {
		c, err := s.Proxy.Cluster(node)
		if err != nil {
			return err
		}
		in, err := c.ProfileGuests(ctx, connect.NewRequest(r))
		if err != nil {
			return err
		}
		defer in.Close()
		for in.Receive() {
			if err := m.send(ctx, in.Msg()); err != nil {
				return err
			}
		}
		return in.Err()
	}()
	if err != nil {
		s.Log.Warn("cannot profile guests on another node", "node", string(node), "error", err)
		m.send(ctx, &clusterv1.ProfileGuestsResponse{MissingNodes: []string{string(node)}})
	}
}

// profileParts converts stacks to messages, at least one. Each message contains the
// names that its stacks refer to.
func profileParts(node string, stacks []modules.GuestStack) func(yield func(*clusterv1.ProfileGuestsResponse) bool) {
	return func(yield func(*clusterv1.ProfileGuestsResponse) bool) {
		part, size, known := &clusterv1.ProfileGuestsResponse{NodeId: node}, 0, map[string]uint32{}
		for _, s := range stacks {
			if size >= profileMessageBytes {
				if !yield(part) {
					return
				}
				part, size, known = &clusterv1.ProfileGuestsResponse{NodeId: node}, 0, map[string]uint32{}
			}
			to := &clusterv1.ProfileGuestsResponse_Stack{Samples: s.Samples, Fuel: s.Fuel}
			for _, name := range s.Functions {
				index, ok := known[name]
				if !ok {
					index = uint32(len(part.Functions))
					known[name] = index
					part.Functions = append(part.Functions, name)
					size += len(name) + 8
				}
				to.Functions = append(to.Functions, index)
				size += 4
			}
			part.Stacks = append(part.Stacks, to)
			size += 24
		}
		yield(part)
	}
}
