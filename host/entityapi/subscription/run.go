package subscription

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// run keeps a reader for each node from which shards are read, and sends the
// events that the readers pass on. It stops at the end of the subscription,
// when the call is cancelled, or when the server stops. It returns after all
// readers have ended.
func (s *subscription) run(ctx context.Context) error {
	defer func() {
		for _, rdr := range s.readers {
			rdr.cancel()
		}
		for _, rdr := range s.readers {
			<-rdr.gone
		}
	}()
	tick := time.NewTicker(positionsEvery)
	defer tick.Stop()
	progress := time.Now()
	for {
		changed := s.service.Proxy.Changed()
		again, err := s.assign(ctx)
		if err != nil {
			return err
		}
		if len(s.readers) == 0 && !s.follow && s.isFinished() {
			return s.sendPositions(time.Now().Add(positionsEvery))
		}
		for wait := true; wait; {
			select {
			case it := <-s.items:
				progress, s.failed = time.Now(), false
				if err := s.take(it); err != nil {
					return err
				}
			case rdr := <-s.ended:
				if err := s.end(ctx, rdr); err != nil {
					return err
				}
				wait = false
			case <-changed:
				wait = false
			case <-again:
				wait = false
			case now := <-tick.C:
				if err := s.sendPositions(now); err != nil {
					return err
				}
				if shard, cut := s.isCutOff(now); cut {
					return &sharding.NotLeaderError{Shard: shard}
				}
				if still := now.Sub(progress); !s.follow && (s.failed && still > readPatience || len(s.readers) == 0 && still > leaderproxy.Patience) {
					return &sharding.NotLeaderError{Shard: s.missing()}
				}
			case <-ctx.Done():
				return ctx.Err()
			case <-s.service.Streams.Stopping():
				return connect.NewError(connect.CodeUnavailable, admission.ErrStopping)
			}
		}
	}
}

// assign assigns every shard to the node that can read it best, and replaces
// readers whose shards have changed. If again is not nil, assign should be
// called when it fires, even if nothing changes.
func (s *subscription) assign(ctx context.Context) (again <-chan time.Time, err error) {
	want := make(map[sharding.NodeID][]sharding.ShardID)
	for _, shard := range s.wanted {
		if s.done[shard] {
			continue
		}
		node, known := s.place(shard)
		switch {
		case known:
			want[node] = append(want[node], shard)
		case s.fromPeer, !s.follow && !s.service.Proxy.Quorum(shard):
			return nil, &sharding.NotLeaderError{Shard: shard}
		}
	}
	for node, rdr := range s.readers {
		if !slices.Equal(want[node], rdr.shards) {
			rdr.cancel()
			<-rdr.gone
			delete(s.readers, node)
		}
	}
	now, soonest := time.Now(), time.Duration(0)
	for node, shards := range want {
		if s.readers[node] != nil {
			continue
		}
		if r := s.backoff[node]; r != nil && now.Before(r.until) {
			if left := r.until.Sub(now); soonest == 0 || left < soonest {
				soonest = left
			}
			continue
		}
		s.start(ctx, node, shards)
	}
	if soonest > 0 {
		again = time.After(soonest)
	}
	return again, nil
}

// followPatience is how long a subscription that follows may make no progress
// because of this node. It is longer than an election.
const followPatience = 5 * time.Second

// isCutOff reports whether a subscription that follows is cut off: for
// followPatience, this node has not been able to read the returned shard at
// all, or only from a replica without a quorum. The caller should then
// subscribe at a different node.
func (s *subscription) isCutOff(now time.Time) (sharding.ShardID, bool) {
	if !s.follow {
		return 0, false
	}
	shard, still := s.findStalled()
	switch {
	case !still:
		s.stalledSince = time.Time{}
	case s.stalledSince.IsZero():
		s.stalledSince = now
	}
	return shard, still && now.Sub(s.stalledSince) >= followPatience
}

// findStalled returns a shard whose new events cannot be read now.
func (s *subscription) findStalled() (sharding.ShardID, bool) {
	read := 0
	for node, rdr := range s.readers {
		read += len(rdr.shards)
		if node == "" {
			for _, shard := range rdr.shards {
				if !s.service.Proxy.Quorum(shard) {
					return shard, true
				}
			}
		}
	}
	if read == len(s.wanted) {
		return 0, false
	}
	for _, shard := range s.wanted {
		reads := func(rdr *reader) bool { return slices.Contains(rdr.shards, shard) }
		if !slices.ContainsFunc(slices.Collect(maps.Values(s.readers)), reads) {
			return shard, true
		}
	}
	return 0, false
}

// place returns the node at which to read a shard. The empty name means this
// node: it leads the shard or, for a subscription that follows, has a replica
// that has applied everything that the caller has seen. Otherwise it is the
// leader, because only the leader can decide that a position is ahead of the
// log.
func (s *subscription) place(shard sharding.ShardID) (node sharding.NodeID, known bool) {
	order := s.service.EventOrder
	if s.service.Proxy.Leads(shard) || s.follow && order.HasReplica(shard) && s.at[shard].Index <= order.AppliedIndex(shard)+1 {
		return "", true
	}
	if s.fromPeer {
		return "", false
	}
	return s.service.Proxy.Remote(shard)
}

// readerBackoff delays the restart of a reader that has failed.
type readerBackoff struct {
	pause time.Duration
	until time.Time
}

// end handles a reader that has ended: its shards are finished, or it is
// restarted later if its error is transient.
func (s *subscription) end(ctx context.Context, rdr *reader) error {
	<-rdr.gone
	if s.readers[rdr.node] != rdr {
		return nil
	}
	delete(s.readers, rdr.node)
	if rdr.err == nil {
		for _, shard := range rdr.shards {
			s.done[shard] = true
		}
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.fromPeer || s.service.Proxy.Alone() || !transient(rdr.err) {
		return rdr.err
	}
	s.failed = true
	r := s.backoff[rdr.node]
	if r == nil || time.Since(r.until) > 10*leaderproxy.MaxPause {
		r = &readerBackoff{}
		s.backoff[rdr.node] = r
	}
	r.pause = min(max(2*r.pause, leaderproxy.MinPause), leaderproxy.MaxPause)
	r.until = time.Now().Add(r.pause)
	return nil
}

// transient reports whether a restarted reader may succeed.
func transient(err error) bool {
	return leaderproxy.Retry(err) || leaderproxy.IsCanceled(err) || errors.Is(err, journal.ErrInstalling) || errors.Is(err, journal.ErrStopped)
}

func (s *subscription) isFinished() bool {
	return !slices.ContainsFunc(s.wanted, func(shard sharding.ShardID) bool { return !s.done[shard] })
}

// missing returns a shard that was not read to its end.
func (s *subscription) missing() sharding.ShardID {
	return s.wanted[slices.IndexFunc(s.wanted, func(shard sharding.ShardID) bool { return !s.done[shard] })]
}
