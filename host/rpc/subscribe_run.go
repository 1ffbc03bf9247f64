package rpc

import (
	"context"
	"errors"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// run keeps a source for each node that shards are read at, and passes on what
// they read, until the end, that of the caller or of the server. It returns
// once all sources have ended.
func (s *subscription) run(ctx context.Context) error {
	defer func() {
		for _, src := range s.sources {
			src.cancel()
		}
		for _, src := range s.sources {
			<-src.gone
		}
	}()
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	progress := time.Now()
	for {
		changed := s.service.elsewhere.changed()
		again, err := s.assign(ctx)
		if err != nil {
			return err
		}
		if len(s.sources) == 0 && !s.follow && s.finished() {
			return s.tell(time.Now().Add(tellEvery))
		}
		for wait := true; wait; {
			select {
			case it := <-s.items:
				progress, s.failed = time.Now(), false
				if err := s.take(it); err != nil {
					return err
				}
			case src := <-s.ended:
				if err := s.end(ctx, src); err != nil {
					return err
				}
				wait = false
			case <-changed:
				wait = false
			case <-again:
				wait = false
			case now := <-tick.C:
				if err := s.tell(now); err != nil {
					return err
				}
				if !s.follow && (s.failed || len(s.sources) == 0) && now.Sub(progress) > readPatience {
					return &sharding.NotLeaderError{Shard: s.missing()}
				}
			case <-ctx.Done():
				return ctx.Err()
			case <-s.service.guard.stopCh:
				return connect.NewError(connect.CodeUnavailable, errStopping)
			}
		}
	}
}

// assign gives every shard to the source that reads it best, and replaces
// sources whose shards have changed. again fires when it should be tried once
// more although nothing changes.
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
		case s.hopped, !s.follow && !s.service.elsewhere.nodes.Quorum(shard):
			return nil, &sharding.NotLeaderError{Shard: shard}
		}
	}
	for node, src := range s.sources {
		if !slices.Equal(want[node], src.shards) {
			src.cancel()
			<-src.gone
			delete(s.sources, node)
		}
	}
	now, soonest := time.Now(), time.Duration(0)
	for node, shards := range want {
		if s.sources[node] != nil {
			continue
		}
		if r := s.rest[node]; r != nil && now.Before(r.until) {
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

// place says where a shard is read: here (the empty name) where this node
// leads it or, by those who follow, has a replica; else at its leader.
func (s *subscription) place(shard sharding.ShardID) (node sharding.NodeID, known bool) {
	e := &s.service.elsewhere
	if e.leads(shard) || s.follow && s.service.deps.Orderings.Held(shard) {
		return "", true
	}
	if s.hopped {
		return "", false
	}
	node, self, known := e.nodes.Leader(shard)
	return node, known && !self
}

// rest keeps a source that has failed from being started again at once.
type rest struct {
	pause time.Duration
	until time.Time
}

// end takes note of a source that has ended: its shards are read to the end, or
// it is started again when it may do better then.
func (s *subscription) end(ctx context.Context, src *source) error {
	<-src.gone
	if s.sources[src.node] != src {
		return nil
	}
	delete(s.sources, src.node)
	if src.err == nil {
		for _, shard := range src.shards {
			s.done[shard] = true
		}
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.hopped || s.service.elsewhere.nodes == nil || !transient(src.err) {
		return src.err
	}
	s.failed = true
	r := s.rest[src.node]
	if r == nil || time.Since(r.until) > 10*maxLeaderPause {
		r = &rest{}
		s.rest[src.node] = r
	}
	r.pause = min(max(2*r.pause, minLeaderPause), maxLeaderPause)
	r.until = time.Now().Add(r.pause)
	return nil
}

// transient reports that a source may do better at its next start. One that was
// canceled, but not here, was so by the end of the other node.
func transient(err error) bool {
	return retry(err) || errors.Is(err, journal.ErrInstalling) || connect.CodeOf(err) == connect.CodeCanceled
}

func (s *subscription) finished() bool {
	return !slices.ContainsFunc(s.wanted, func(shard sharding.ShardID) bool { return !s.done[shard] })
}

// missing is a shard that is not read to its end.
func (s *subscription) missing() sharding.ShardID {
	return s.wanted[slices.IndexFunc(s.wanted, func(shard sharding.ShardID) bool { return !s.done[shard] })]
}
