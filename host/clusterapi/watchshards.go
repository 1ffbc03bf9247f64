package clusterapi

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

const (
	// lookEvery is the minimum interval between two messages to a caller.
	lookEvery = 200 * time.Millisecond
	// listEvery is how often all shards are listed if no leader has changed.
	// countEvery is how often the sizes of shards are sent, because they change
	// with each command.
	listEvery  = time.Second
	countEvery = 10 * time.Second
)

// shardWatch implements WatchShards. All fields are required.
type shardWatch struct {
	NodeID string
	// Shards returns all shards, by number. The caller owns the messages.
	Shards func(ctx context.Context) ([]*clusterv1.Shard, error)
	// Leaders returns the leaders of the shards, by number. It must be fast.
	Leaders func() []sharding.NodeID
	Streams *admission.Streams
	Log     *slog.Logger
}

// WatchShards sends the shards and then their changes, until the caller or the
// server ends it.
func (s *shardWatch) WatchShards(ctx context.Context, _ *connect.Request[clusterv1.WatchShardsRequest], out *connect.ServerStream[clusterv1.WatchShardsResponse]) error {
	open, err := s.Streams.Enter(ctx)
	if err != nil {
		return status.Public(s.Log, err)
	}
	defer open.Leave()
	// Send the headers now, because the first message may arrive late.
	if err := out.Send(nil); err != nil {
		return err
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var sent seen
	for {
		m, err := s.look(ctx, &sent, time.Now())
		if err != nil {
			return status.Public(s.Log, err)
		}
		for part := range shardParts(m) {
			open.BeginWrite()
			err := out.Send(part)
			open.EndWrite()
			if err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return status.Public(s.Log, ctx.Err())
		case <-s.Streams.Stopping():
			return status.Public(s.Log, admission.ErrStopping)
		}
	}
}

// shardParts splits m into the messages that are sent; it returns none if m is
// nil. Each message has the size of a page of a listing, and all after the
// first are marked as changes.
func shardParts(m *clusterv1.WatchShardsResponse) iter.Seq[*clusterv1.WatchShardsResponse] {
	return func(yield func(*clusterv1.WatchShardsResponse) bool) {
		if m == nil {
			return
		}
		room, first := page.NewRoom(page.MaxItems), 0
		for i, sh := range m.GetShards() {
			if room.Full() {
				if !yield(&clusterv1.WatchShardsResponse{Shards: m.GetShards()[first:i], Changes: m.GetChanges() || first > 0, NodeId: m.GetNodeId()}) {
					return
				}
				room, first = page.NewRoom(page.MaxItems), i
			}
			room.Take(sh)
		}
		yield(&clusterv1.WatchShardsResponse{Shards: m.GetShards()[first:], Changes: m.GetChanges() || first > 0, NodeId: m.GetNodeId()})
	}
}

// seen is the state that a caller was last sent.
type seen struct {
	shards  []*clusterv1.Shard
	leaders []sharding.NodeID // when the shards were last listed
	listed  time.Time
	counted time.Time
}

// look returns the next message for a caller, or nil.
func (s *shardWatch) look(ctx context.Context, sent *seen, now time.Time) (*clusterv1.WatchShardsResponse, error) {
	leaders := s.Leaders()
	first := sent.listed.IsZero()
	if !first && slices.Equal(leaders, sent.leaders) && now.Sub(sent.listed) < listEvery {
		return nil, nil
	}
	shards, err := s.Shards(ctx)
	if err != nil {
		return nil, err
	}
	counts := first || now.Sub(sent.counted) >= countEvery
	out := &clusterv1.WatchShardsResponse{Changes: !first, NodeId: s.NodeID}
	for i, sh := range shards {
		if first || i >= len(sent.shards) || differ(sent.shards[i], sh, counts) {
			out.Shards = append(out.Shards, sh)
		} else {
			shards[i] = sent.shards[i]
		}
	}
	sent.shards, sent.leaders, sent.listed = shards, leaders, now
	if counts {
		sent.counted = now
	}
	if len(out.Shards) == 0 && !first {
		return nil, nil
	}
	return out, nil
}

// differ reports whether a shard has changed. If counts is not set, a change of
// its size does not count.
func differ(was, is *clusterv1.Shard, counts bool) bool {
	if counts {
		return !proto.Equal(was, is)
	}
	return was.GetLeader() != is.GetLeader() || was.GetTerm() != is.GetTerm() || !slices.Equal(was.GetVoters(), is.GetVoters()) || !slices.Equal(was.GetLostVoters(), is.GetLostVoters()) || !slices.Equal(was.GetLearners(), is.GetLearners()) ||
		!slices.EqualFunc(was.GetStopped(), is.GetStopped(), func(a, b *clusterv1.StoppedReplica) bool { return proto.Equal(a, b) })
}
