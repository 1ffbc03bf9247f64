package subscription

import (
	"cmp"
	"context"
	"hash/crc32"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/cursor"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// positionsEvery is how often a stream with partial cursors sends the positions
// that have moved although no event was sent.
const positionsEvery = time.Second

// SubscribeEvents streams the events of a type, each shard in the order of its log.
func (s *Service) SubscribeEvents(ctx context.Context, r *connect.Request[entityv1.SubscribeEventsRequest], stream *connect.ServerStream[entityv1.SubscribeEventsResponse]) error {
	sub, err := s.newSubscription(ctx, r.Msg)
	if err != nil {
		return status.Public(s.Log, err)
	}
	guard, err := s.Streams.Enter(ctx)
	if err != nil {
		return status.Public(s.Log, err)
	}
	defer guard.Leave()
	sub.guard, sub.stream = guard, stream
	if !sub.fromPeer {
		s.metrics.subscribers.Inc()
		defer s.metrics.subscribers.Dec()
	}
	if sub.follow {
		// Send the headers now, so that the caller knows that the stream is
		// established before there is an event.
		if err := stream.Send(nil); err != nil {
			return err
		}
	}
	if err := sub.run(ctx); err != nil {
		return status.Public(s.Log, leaderproxy.CallerError(err))
	}
	return nil
}

// subscription is one stream of a type's events. It sends each event of the
// wanted shards exactly once, in the order of the shard's log, while leaders
// move and nodes fail, and the caller can continue after any event at any node.
//
// Readers, one for each node, read the shards that they are assigned: from this
// node's replicas, or through a SubscribeEvents call to a different node. They pass
// events and positions over an unbuffered channel, so each reads at most one
// message ahead and a slow caller slows them down instead of filling a queue.
// The subscription alone knows the position of each shard and sends to the
// caller.
//
// When something changes, assign compares the best node for each shard with
// the present readers. It cancels and joins a reader whose shards have
// changed before it starts another reader at the positions reached so far, so
// a shard never has two readers. take drops events that are not ahead of the
// position of their shard, so a reader that starts early repeats nothing.
//
// A subscription that follows can use any replica, because a replica applies
// only committed entries and missing entries arrive later. A subscription
// that ends needs the leader of each shard, because only the leader knows
// where the log ends. For the same reason only the leader can decide that a
// cursor is ahead of the log.
//
// The node stores no subscriptions. The position is in the cursor that the
// caller keeps, so nothing has to be replicated or cleaned up for subscribers.
//
// A subscription belongs to the goroutine of its call.
type subscription struct {
	service  *Service
	request  *entityv1.SubscribeEventsRequest
	follow   bool
	fromPeer bool // the caller is a node, so only this node's replicas are read
	kind     wire.PayloadKind
	guard    *admission.Stream
	stream   *connect.ServerStream[entityv1.SubscribeEventsResponse]

	mark          uint32
	all           []sharding.ShardID // all shards of the cluster, in order
	wanted        []sharding.ShardID // shards to read, in order
	at            []cursor.Position  // positions by shard
	done          []bool             // by shard: the shard is read to the requested end
	moved         map[sharding.ShardID]struct{}
	begun         bool      // the first position was sent to the caller
	compacted     uint64    // compacted events that were skipped and are not reported yet
	positionsSent time.Time // when the moved positions were last sent

	readers map[sharding.NodeID]*reader // by node; the empty name is this node
	items   chan arrival
	ended   chan *reader
	backoff map[sharding.NodeID]*readerBackoff // by node whose reader has failed
	failed  bool                               // a reader has failed since the last arrival

	stalledSince time.Time // since when some shard could not be read; zero if all shards can
}

// arrival is a message of a reader: the new positions of its shards, and the
// event, if there is one.
type arrival struct {
	places  []cursor.Place
	event   *entityv1.SubscribeEventsResponse
	shard   sharding.ShardID // the shard of the event
	skipped uint64           // compacted events before this event
}

// newSubscription validates a request.
func (s *Service) newSubscription(ctx context.Context, m *entityv1.SubscribeEventsRequest) (*subscription, error) {
	kind := wire.JSONPayload
	switch encoding, err := s.Types.Encoding(ctx, m.GetEntityType()); {
	case err != nil:
		return nil, err
	case encoding == request.Bytes || m.GetAsData():
		kind = wire.DataPayload
	}
	if err := s.mayUpcast(ctx, m.GetEntityType(), m.GetUpcast()); err != nil {
		return nil, err
	}
	shards := s.Sharding.Shards()
	sub := &subscription{
		service: s, request: m, follow: m.GetFollow(), fromPeer: leaderproxy.FromPeer(ctx), kind: kind,
		mark: subscriptionHash(s.EventOrder.Cluster(), m.GetEntityType(), m.GetTag()),
		at:   make([]cursor.Position, shards+1), done: make([]bool, shards+1), moved: make(map[sharding.ShardID]struct{}),
		readers: make(map[sharding.NodeID]*reader), items: make(chan arrival), ended: make(chan *reader), backoff: make(map[sharding.NodeID]*readerBackoff),
	}
	for shard := sharding.ShardID(1); uint32(shard) <= shards; shard++ {
		sub.all = append(sub.all, shard)
	}
	for _, shard := range m.GetShards() {
		if shard == 0 || shard > shards {
			return nil, status.Argument("the shard does not exist")
		}
		sub.wanted = append(sub.wanted, sharding.ShardID(shard))
	}
	slices.Sort(sub.wanted)
	if len(sub.wanted) == 0 {
		sub.wanted = sub.all
	}
	if m.GetFromNewest() && !sub.follow {
		return nil, status.Argument("from_newest requires a stream that follows new events")
	}
	if m.GetCursor() == "" {
		sub.begun = !m.GetFromNewest()
		return sub, nil
	}
	c, err := cursor.Parse(m.GetCursor())
	if err != nil {
		return nil, status.Argument(err.Error())
	}
	if c.Mark != sub.mark || c.Shards != shards {
		return nil, status.Argument("the cursor belongs to a different cluster, entity type or tag")
	}
	for _, p := range c.Places {
		sub.at[p.Shard] = p.Position
		sub.moved[sharding.ShardID(p.Shard)] = struct{}{}
	}
	sub.begun = !m.GetFromNewest() || sub.hasPositions()
	return sub, nil
}

// hasPositions reports whether all wanted shards have a position.
func (s *subscription) hasPositions() bool {
	return !slices.ContainsFunc(s.wanted, func(shard sharding.ShardID) bool { return s.at[shard] == cursor.Position{} })
}

// subscriptionHash returns a hash of the cluster, the type and the tag of a
// cursor, so that cursors of a different subscription are rejected.
func subscriptionHash(cluster, entityType, tag string) uint32 {
	return crc32.Checksum([]byte(cluster+"\x00"+entityType+"\x00"+tag), crc32.MakeTable(crc32.Castagnoli))
}

// take advances the positions and sends the event. It drops an event that is
// not after the position of its shard, because that event was already sent.
func (s *subscription) take(it arrival) error {
	fresh, ahead := false, false
	for _, p := range it.places {
		if s.at[p.Shard].Less(p.Position) {
			s.at[p.Shard], ahead = p.Position, true
			fresh = fresh || it.event != nil && sharding.ShardID(p.Shard) == it.shard
			s.moved[sharding.ShardID(p.Shard)] = struct{}{}
		}
	}
	if !s.begun && s.hasPositions() {
		s.begun = true
		if err := s.send(&entityv1.SubscribeEventsResponse{Cursor: s.cursor()}); err != nil {
			return err
		}
	}
	if ahead {
		s.compacted += it.skipped
	}
	if !fresh {
		return nil
	}
	it.event.Cursor = s.cursor()
	return s.send(it.event)
}

// sendPositions sends the positions that have moved although no event was sent.
func (s *subscription) sendPositions(now time.Time) error {
	if !s.request.GetPartialCursors() || !s.begun || len(s.moved) == 0 || now.Sub(s.positionsSent) < positionsEvery {
		return nil
	}
	return s.send(&entityv1.SubscribeEventsResponse{Cursor: s.cursor()})
}

// cursor encodes the positions, or only the positions that the caller lacks
// if it accepts partial cursors.
func (s *subscription) cursor() string {
	c := cursor.Cursor{Mark: s.mark, Shards: uint32(len(s.at) - 1)}
	if s.request.GetPartialCursors() {
		for shard := range s.moved {
			c.Places = append(c.Places, cursor.Place{Shard: uint32(shard), Position: s.at[shard]})
		}
		slices.SortFunc(c.Places, func(a, b cursor.Place) int { return cmp.Compare(a.Shard, b.Shard) })
	} else {
		c.Places = s.places(s.all)
	}
	clear(s.moved)
	s.positionsSent = time.Now()
	return c.Text()
}

// places returns the positions of shards. Positions at the beginning are left
// out.
func (s *subscription) places(shards []sharding.ShardID) []cursor.Place {
	out := make([]cursor.Place, 0, len(shards))
	for _, shard := range shards {
		if at := s.at[shard]; at != (cursor.Position{}) {
			out = append(out, cursor.Place{Shard: uint32(shard), Position: at})
		}
	}
	return out
}

func (s *subscription) send(m *entityv1.SubscribeEventsResponse) error {
	m.Skipped, s.compacted = s.compacted, 0
	s.guard.BeginWrite()
	defer s.guard.EndWrite()
	if err := s.stream.Send(m); err != nil {
		return connect.NewError(connect.CodeCanceled, context.Canceled)
	}
	if m.GetSequence() > 0 && !s.fromPeer {
		s.service.metrics.delivered.Inc()
		s.service.metrics.lag.Alone().Observe(time.Since(m.GetRecordedAt().AsTime()))
	}
	return nil
}
