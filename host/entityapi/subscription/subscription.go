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
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// tellEvery is how often a stream with partial cursors tells of positions that
// moved without an event.
const tellEvery = time.Second

// Subscribe streams the events of a type, shard by shard in the order of the
// logs.
func (s *Service) Subscribe(ctx context.Context, r *connect.Request[entityv1.SubscribeRequest], stream *connect.ServerStream[entityv1.SubscribeResponse]) error {
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
		// Headers now: the caller sees that the stream stands before there is
		// an event.
		if err := stream.Send(nil); err != nil {
			return err
		}
	}
	if err := sub.run(ctx); err != nil {
		return status.Public(s.Log, leaderproxy.Proxied(err))
	}
	return nil
}

// subscription is one stream. Readers read ahead of it by one message each;
// it alone knows the positions and talks to the caller. It belongs to the
// goroutine of its call.
type subscription struct {
	service  *Service
	request  *entityv1.SubscribeRequest
	follow   bool
	fromPeer bool // the caller is a node: nothing is read elsewhere
	kind     wire.PayloadKind
	guard    *admission.Stream
	stream   *connect.ServerStream[entityv1.SubscribeResponse]

	mark   uint32
	all    []sharding.ShardID // of the cluster, in order
	wanted []sharding.ShardID // in order
	at     []cursor.Position  // by shard
	done   []bool             // by shard: read to the end that was wanted
	moved  map[sharding.ShardID]struct{}
	begun  bool      // the caller was told where it begins
	cut    uint64    // events that were passed over and not told of
	told   time.Time // when moved was last told

	readers map[sharding.NodeID]*reader // the empty name is this node
	items   chan arrival
	ended   chan *reader
	backoff map[sharding.NodeID]*readerBackoff // of readers that failed
	failed  bool                               // one did since something arrived

	stillSince time.Time // since when nothing new of some shard can be read; zero where all can
}

// arrival is what a reader has read: where its shards stand after it, and the
// event, unless they stand there without one.
type arrival struct {
	places  []cursor.Place
	event   *entityv1.SubscribeResponse
	shard   sharding.ShardID // of the event
	skipped uint64           // events before it that were cut
}

// newSubscription checks a request.
func (s *Service) newSubscription(ctx context.Context, m *entityv1.SubscribeRequest) (*subscription, error) {
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
		mark: subscriptionMark(s.EventOrder.Cluster(), m.GetEntityType(), m.GetTag()),
		at:   make([]cursor.Position, shards+1), done: make([]bool, shards+1), moved: make(map[sharding.ShardID]struct{}),
		readers: make(map[sharding.NodeID]*reader), items: make(chan arrival), ended: make(chan *reader), backoff: make(map[sharding.NodeID]*readerBackoff),
	}
	for shard := sharding.ShardID(1); uint32(shard) <= shards; shard++ {
		sub.all = append(sub.all, shard)
	}
	for _, shard := range m.GetShards() {
		if shard == 0 || shard > shards {
			return nil, status.Argument("there is no such shard")
		}
		sub.wanted = append(sub.wanted, sharding.ShardID(shard))
	}
	slices.Sort(sub.wanted)
	if len(sub.wanted) == 0 {
		sub.wanted = sub.all
	}
	if m.GetFromNewest() && !sub.follow {
		return nil, status.Argument("from_newest is for a stream that follows")
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
		return nil, status.Argument("the cursor is one of another cluster, entity type or tag")
	}
	for _, p := range c.Places {
		sub.at[p.Shard] = p.Position
		sub.moved[sharding.ShardID(p.Shard)] = struct{}{}
	}
	sub.begun = !m.GetFromNewest() || sub.placed()
	return sub, nil
}

// placed reports whether all shards that are wanted have a position.
func (s *subscription) placed() bool {
	return !slices.ContainsFunc(s.wanted, func(shard sharding.ShardID) bool { return s.at[shard] == cursor.Position{} })
}

// subscriptionMark tells cursors of different clusters, types and tags apart.
func subscriptionMark(cluster, entityType, tag string) uint32 {
	return crc32.Checksum([]byte(cluster+"\x00"+entityType+"\x00"+tag), crc32.MakeTable(crc32.Castagnoli))
}

// take moves the positions on and sends the event. What is not ahead of them
// was sent before.
func (s *subscription) take(it arrival) error {
	fresh, ahead := false, false
	for _, p := range it.places {
		if s.at[p.Shard].Less(p.Position) {
			s.at[p.Shard], ahead = p.Position, true
			fresh = fresh || it.event != nil && sharding.ShardID(p.Shard) == it.shard
			s.moved[sharding.ShardID(p.Shard)] = struct{}{}
		}
	}
	if !s.begun && s.placed() {
		s.begun = true
		if err := s.send(&entityv1.SubscribeResponse{Cursor: s.cursor()}); err != nil {
			return err
		}
	}
	if ahead {
		s.cut += it.skipped
	}
	if !fresh {
		return nil
	}
	it.event.Cursor = s.cursor()
	return s.send(it.event)
}

// tell sends positions that moved without an event.
func (s *subscription) tell(now time.Time) error {
	if !s.request.GetPartialCursors() || !s.begun || len(s.moved) == 0 || now.Sub(s.told) < tellEvery {
		return nil
	}
	return s.send(&entityv1.SubscribeResponse{Cursor: s.cursor()})
}

// cursor encodes the positions, or those that the caller does not have yet.
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
	s.told = time.Now()
	return c.Text()
}

// places are the positions of some shards, without those at the beginning.
func (s *subscription) places(shards []sharding.ShardID) []cursor.Place {
	out := make([]cursor.Place, 0, len(shards))
	for _, shard := range shards {
		if at := s.at[shard]; at != (cursor.Position{}) {
			out = append(out, cursor.Place{Shard: uint32(shard), Position: at})
		}
	}
	return out
}

func (s *subscription) send(m *entityv1.SubscribeResponse) error {
	m.Skipped, s.cut = s.cut, 0
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
