package entityapi

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// nodeTime limits the time in which a different node must list its timers.
const nodeTime = 3 * time.Second

// placedTimer is a timer with its place in the order of the cluster.
type placedTimer struct {
	at    timerPlace
	timer *entityv1.ListTimersResponse_EntityTimer
}

// timerPart is a list of timers, in order. If end is set, there may be more timers
// after it.
type timerPart struct {
	timers []placedTimer
	end    *timerPlace
}

// merge adds a part, and drops the timers after the nearest end or beyond a
// page.
//
// Each part is sorted, but a part with an end was truncated there and may have
// more timers after it. Timers of other parts that are later than that end must
// wait for the next page, because the missing timers may come before them. So
// the merged part ends at the earliest of these ends, and the next page starts
// there on all nodes.
func (p *timerPart) merge(other timerPart, size int) {
	p.timers = append(p.timers, other.timers...)
	if other.end != nil && (p.end == nil || other.end.Before(*p.end)) {
		p.end = other.end
	}
	slices.SortFunc(p.timers, func(a, b placedTimer) int { return a.at.compare(b.at) })
	// Two nodes may both return the timers of a shard whose leader changes
	// during the call.
	p.timers = slices.CompactFunc(p.timers, func(a, b placedTimer) bool { return a.at == b.at })
	for n := range p.timers {
		if p.end != nil && p.end.Before(p.timers[n].at) {
			p.timers = p.timers[:n]
			break
		}
		if n == size {
			last := p.timers[n-1].at
			p.timers, p.end = p.timers[:n], &last
			break
		}
	}
}

// ListTimers returns a page of the timers of all nodes.
func (s *handler) ListTimers(ctx context.Context, r *connect.Request[entityv1.ListTimersRequest]) (*connect.Response[entityv1.ListTimersResponse], error) {
	out, err := s.listTimers(ctx, r.Msg)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(out), nil
}

func (s *handler) listTimers(ctx context.Context, m *entityv1.ListTimersRequest) (*entityv1.ListTimersResponse, error) {
	if s.Pending == nil {
		return nil, request.ErrUnsupported
	}
	whole := !leaderproxy.FromPeer(ctx) && !s.Proxy.Alone()
	if err := s.checkType(ctx, m.GetEntityType()); err != nil {
		return nil, err
	}
	q := timerQuery{Type: m.GetEntityType(), By: math.MaxInt64, Limit: timerPageSize(m.GetPageSize()), Scan: scannedPending}
	if m.GetDueBy() != nil {
		q.By = m.GetDueBy().AsTime().UnixNano()
	}
	if m.GetPageToken() != "" {
		var err error
		if q.After, err = parseTimerToken(m); err != nil {
			return nil, err
		}
	}
	out := &entityv1.ListTimersResponse{ShardCount: s.Entities.Shards()}
	var of timerPart
	var mu sync.Mutex
	var all sync.WaitGroup
	if whole {
		members, err := s.nodes.Members(ctx)
		if err != nil {
			return nil, err
		}
		for _, node := range members {
			if node == s.Self {
				continue
			}
			all.Go(func() {
				theirs, read, err := s.remoteTimers(ctx, node, m)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					out.MissingNodes = append(out.MissingNodes, string(node))
					return
				}
				out.ShardsRead += read
				of.merge(theirs, q.Limit)
			})
		}
	}
	own, read, err := s.ownTimers(ctx, q)
	all.Wait()
	if err != nil {
		return nil, err
	}
	of.merge(own, q.Limit)
	out.ShardsRead += read
	slices.Sort(out.MissingNodes)
	for _, t := range of.timers {
		out.Timers = append(out.Timers, t.timer)
	}
	if of.end != nil {
		out.NextPageToken = timerToken(m, *of.end)
	}
	return out, nil
}

// ownTimers returns the timers of the shards that this node leads, and how many
// shards it read.
func (s *handler) ownTimers(ctx context.Context, q timerQuery) (of timerPart, read uint32, err error) {
	for shard := sharding.ShardID(1); shard <= sharding.ShardID(s.Entities.Shards()); shard++ {
		if !s.Proxy.Leads(shard) {
			continue
		}
		page, err := s.Pending.Timers(ctx, shard, q)
		if err != nil {
			if ctx.Err() != nil {
				return of, read, ctx.Err()
			}
			continue // not read: the shard's leadership has moved, or its replica has stopped
		}
		read++
		next := timerPart{}
		for i := range page.Timers {
			next.timers = append(next.timers, s.placeTimer(shard, &page.Timers[i]))
		}
		if page.More {
			next.end = &page.Last
		}
		of.merge(next, q.Limit)
		if of.end != nil {
			q.By = min(q.By, of.end.Due)
		}
	}
	return of, read, nil
}

func (s *handler) placeTimer(shard sharding.ShardID, t *journal.Timer) placedTimer {
	return placedTimer{s.Pending.Place(t), &entityv1.ListTimersResponse_EntityTimer{
		EntityType: t.Entity.Type, EntityId: t.Entity.ID, ShardId: uint32(shard), Timer: timerMessage(t),
	}}
}

// remoteTimers returns the timers of the shards that a different node leads.
func (s *handler) remoteTimers(ctx context.Context, node sharding.NodeID, m *entityv1.ListTimersRequest) (of timerPart, read uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTime)
	defer cancel()
	client, err := s.Proxy.Client(node)
	if err != nil {
		return of, 0, err
	}
	res, err := client.ListTimers(ctx, connect.NewRequest(m))
	if err != nil {
		return of, 0, err
	}
	for _, t := range res.Msg.GetTimers() {
		id := sharding.EntityID{Type: t.GetEntityType(), ID: t.GetEntityId()}
		of.timers = append(of.timers, placedTimer{s.Pending.Place(&journal.Timer{Entity: id, Name: t.GetTimer().GetName(), Due: t.GetTimer().GetDue().AsTime().UnixNano()}), t})
	}
	if token := res.Msg.GetNextPageToken(); token != "" {
		if of.end, err = parseTimerToken(&entityv1.ListTimersRequest{EntityType: m.GetEntityType(), DueBy: m.GetDueBy(), PageToken: token}); err != nil {
			return timerPart{}, 0, err
		}
	}
	return of, res.Msg.GetShardsRead(), nil
}

func (s *handler) checkType(ctx context.Context, entityType string) error {
	if entityType == "" {
		return nil
	}
	_, err := s.Types.Encoding(ctx, entityType)
	return err
}

func timerPageSize(asked uint32) int {
	if asked == 0 {
		return defaultPendingPage
	}
	return int(asked)
}

// timerFilter hashes the filter of a listing, so that tokens of different
// listings differ.
func timerFilter(m *entityv1.ListTimersRequest) uint32 {
	h := fnv.New32a()
	h.Write([]byte(m.GetEntityType()))
	if m.GetDueBy() != nil {
		h.Write(binary.BigEndian.AppendUint64([]byte{0}, uint64(m.GetDueBy().AsTime().UnixNano())))
	}
	return h.Sum32()
}

// timerToken encodes a place as an opaque token.
func timerToken(m *entityv1.ListTimersRequest, at timerPlace) string {
	return page.Token(timerFilter(m), append(binary.BigEndian.AppendUint64(nil, uint64(at.Due)), at.Key...))
}

func parseTimerToken(m *entityv1.ListTimersRequest) (*timerPlace, error) {
	place, err := page.Parse(m.GetPageToken(), timerFilter(m))
	if err != nil || len(place) <= 8 {
		return nil, page.ErrToken
	}
	return &timerPlace{Due: int64(binary.BigEndian.Uint64(place)), Key: string(place[8:])}, nil
}
