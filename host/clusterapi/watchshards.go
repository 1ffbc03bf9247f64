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
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/rpc/page"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

const (
	// lookEvery is how often a caller is sent something at most.
	lookEvery = 200 * time.Millisecond
	// listEvery is how often all shards are listed although nobody leads another
	// one than before, and countEvery how often what they hold is told: that
	// changes with each command.
	listEvery  = time.Second
	countEvery = 10 * time.Second
)

// shardWatch answers WatchShards. All its members are required.
type shardWatch struct {
	NodeID string
	// Shards are all that there are, by number; the messages are the caller's.
	Shards func(ctx context.Context) ([]*clusterv1.Shard, error)
	// Leaders are who leads the shards, by number. It is quick.
	Leaders func() []sharding.NodeID
	Streams *admission.Streams
	Log     *slog.Logger
}

// WatchShards sends the shards, and what becomes of them, until the caller or
// the server ends it.
func (s *shardWatch) WatchShards(ctx context.Context, _ *connect.Request[clusterv1.WatchShardsRequest], out *connect.ServerStream[clusterv1.WatchShardsResponse]) error {
	open, err := s.Streams.Enter(ctx)
	if err != nil {
		return status.Public(s.Log, err)
	}
	defer open.Leave()
	// Headers now: the first message may take long.
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

// shardParts are the messages that m is sent as, none for nil: each ends where a page
// of a listing does, and those behind the first have changes.
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

// seen is what a caller was told.
type seen struct {
	shards  []*clusterv1.Shard
	leaders []sharding.NodeID // when the shards were listed
	listed  time.Time
	counted time.Time
}

// look returns what a caller is to be told, or nil.
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

// differ tells whether a shard is not what it was; what it holds counts where
// counts says so.
func differ(was, is *clusterv1.Shard, counts bool) bool {
	if counts {
		return !proto.Equal(was, is)
	}
	return was.GetLeader() != is.GetLeader() || was.GetTerm() != is.GetTerm() || !slices.Equal(was.GetVoters(), is.GetVoters()) || !slices.Equal(was.GetLostVoters(), is.GetLostVoters()) || !slices.Equal(was.GetLearners(), is.GetLearners()) ||
		!slices.EqualFunc(was.GetStopped(), is.GetStopped(), func(a, b *clusterv1.StoppedReplica) bool { return proto.Equal(a, b) })
}
