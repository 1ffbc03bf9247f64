package clusterapi

import (
	"cmp"
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/status"
)

const (
	// standardInterval is the interval if the caller sets none.
	standardInterval = 2 * time.Second
	// statsNodeTime is how much longer than the interval a different node may
	// take.
	statsNodeTime = 10 * time.Second
	// freshFor is how old a sample may be if it is reused. So a node takes at
	// most five samples per second, however many callers there are.
	freshFor = 200 * time.Millisecond
)

// statsWatch implements WatchStats. The fields of allNodes and Counters are
// required.
type statsWatch struct {
	allNodes
	Counters Counters

	mu   sync.Mutex
	last *Sample
}

// WatchStats sends the activity of each node, once or until the caller or the
// server ends it.
func (s *statsWatch) WatchStats(ctx context.Context, r *connect.Request[clusterv1.WatchStatsRequest], out *connect.ServerStream[clusterv1.WatchStatsResponse]) error {
	open, err := s.Streams.Enter(ctx)
	if err != nil {
		return status.Public(s.Log, err)
	}
	defer open.Leave()
	interval := cmp.Or(r.Msg.GetInterval().AsDuration(), standardInterval)
	call := streamCall[clusterv1.WatchStatsResponse]{
		allNodes: &s.allNodes, Continues: !r.Msg.GetOnce(), NodeTime: interval + statsNodeTime,
		Here: func(ctx context.Context, send func(*clusterv1.WatchStatsResponse) bool) {
			s.measure(ctx, interval, r.Msg.GetOnce(), send)
		},
		There: func(ctx context.Context, c clusterv1connect.ClusterServiceClient) (*connect.ServerStreamForClient[clusterv1.WatchStatsResponse], error) {
			return c.WatchStats(ctx, connect.NewRequest(r.Msg))
		},
		Missing: func(node string) *clusterv1.WatchStatsResponse {
			return &clusterv1.WatchStatsResponse{MissingNodes: []string{node}}
		},
		Left: func(node string) *clusterv1.WatchStatsResponse {
			return &clusterv1.WatchStatsResponse{LeftNodes: []string{node}}
		},
	}
	if err := call.Run(ctx, open, out); err != nil {
		return status.Public(s.Log, err)
	}
	return nil
}

// measure sends the activity of this node in each interval.
func (s *statsWatch) measure(ctx context.Context, interval time.Duration, once bool, send func(*clusterv1.WatchStatsResponse) bool) {
	from := s.sample()
	for {
		if !pause(ctx, interval) {
			return
		}
		to := s.sample()
		if !send(between(s.Self, from, to)) || once {
			return
		}
		from = to
	}
}

// sample returns a sample that is at most freshFor old.
func (s *statsWatch) sample() *Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || time.Since(s.last.At) >= freshFor {
		s.last = s.Counters.Sample()
	}
	return s.last
}
