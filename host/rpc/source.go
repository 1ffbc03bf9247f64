package rpc

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hostd/hostd/api/cursor"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// orderRows is how many rows of a shard are read at a time.
const orderRows = 128

// source reads some shards at one node, in a goroutine of its own. It ends by
// itself at the end of what is wanted, or with an error.
type source struct {
	sub    *subscription
	node   sharding.NodeID // empty is this one
	shards []sharding.ShardID
	cancel context.CancelFunc
	gone   chan struct{} // closed at its end
	err    error         // why it ended; set before gone is closed

	from    cursor.Cursor // of its shards, at its start
	skipped uint64        // events that were cut, since the last arrival
}

// start starts a source from where its shards stand.
func (s *subscription) start(ctx context.Context, node sharding.NodeID, shards []sharding.ShardID) {
	ctx, cancel := context.WithCancel(ctx)
	src := &source{
		sub: s, node: node, shards: shards, cancel: cancel, gone: make(chan struct{}),
		from: cursor.Cursor{Mark: s.mark, Shards: uint32(len(s.at) - 1), Places: s.places(shards)},
	}
	s.sources[node] = src
	go func() {
		defer close(src.gone)
		defer cancel()
		if node == "" {
			src.err = src.here(ctx)
		} else {
			src.err = src.there(ctx)
		}
		select {
		case s.ended <- src:
		case <-ctx.Done():
		}
	}()
}

func (src *source) give(ctx context.Context, it arrival) error {
	it.skipped += src.skipped
	src.skipped = 0
	select {
	case src.sub.items <- it:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// there passes on what another node reads.
func (src *source) there(ctx context.Context) error {
	e := &src.sub.service.elsewhere
	client, err := e.client(src.node)
	if err != nil {
		return err
	}
	m := src.sub.request
	req := &entityv1.SubscribeRequest{
		EntityType: m.GetEntityType(), Tag: m.GetTag(), Follow: m.GetFollow(), Cursor: src.from.Text(),
		AsData: m.GetAsData(), PartialCursors: true, SkipCut: m.GetSkipCut(),
	}
	for _, shard := range src.shards {
		req.Shards = append(req.Shards, uint32(shard))
	}
	in, err := client.Subscribe(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	defer in.Close()
	for in.Receive() {
		c, err := cursor.Parse(in.Msg().GetCursor())
		if err != nil || c.Shards != src.from.Shards {
			return errors.New("another node sent a cursor that is none")
		}
		it := arrival{places: c.Places, skipped: in.Msg().GetSkipped()}
		if in.Msg().GetSequence() > 0 {
			it.event = in.Msg()
			it.shard = src.sub.service.deps.Entities.ShardOf(sharding.EntityID{Type: m.GetEntityType(), ID: it.event.GetEntityId()})
		}
		if err := src.give(ctx, it); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil || !m.GetFollow() {
		return err
	}
	return router.ErrUnreachable
}

// here reads this node's replicas, in turn. It watches before it reads: nothing
// falls between.
func (src *source) here(ctx context.Context) error {
	s := src.sub.service
	at := make([]cursor.Position, len(src.shards))
	for i, shard := range src.shards {
		for _, p := range src.from.Places {
			if p.Shard == uint32(shard) {
				at[i] = p.Position
			}
		}
	}
	if !src.sub.follow {
		for i, shard := range src.shards {
			if err := src.toEnd(ctx, shard, at[i]); err != nil {
				return err
			}
		}
		return nil
	}
	changed, stop := s.deps.Orderings.Watch(src.shards)
	defer stop()
	looked := make([]uint64, len(src.shards))
	for {
		more := false
		for i, shard := range src.shards {
			if err := src.check(ctx, shard, at[i]); err != nil {
				return err
			}
			end := s.deps.Orderings.Applied(shard)
			if end == looked[i] {
				continue
			}
			next, all, err := src.stretch(ctx, shard, at[i], end)
			if err != nil {
				return err
			}
			if at[i] = next; all {
				looked[i] = end
			}
			more = more || !all
		}
		if more {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// toEnd reads a shard that is led here as far as it is applied now.
func (src *source) toEnd(ctx context.Context, shard sharding.ShardID, at cursor.Position) error {
	s := src.sub.service
	if err := src.check(ctx, shard, at); err != nil {
		return err
	}
	end := s.deps.Orderings.Applied(shard)
	for all := false; !all; {
		var err error
		if at, all, err = src.stretch(ctx, shard, at, end); err != nil {
			return err
		}
	}
	// A replica that has gone meanwhile reads as an empty one.
	if !s.elsewhere.leads(shard) {
		return &sharding.NotLeaderError{Shard: shard}
	}
	return nil
}

// check fails when the shard is not to be read here any more, or the position
// is none of its log. Only the leader is sure to have all of the log; it may
// have applied less than the replica that the position is of, and one that has
// stood still may lead no more without knowing.
func (src *source) check(ctx context.Context, shard sharding.ShardID, at cursor.Position) error {
	s := src.sub.service
	leads := s.elsewhere.leads(shard)
	if !leads && (!src.sub.follow || !s.deps.Orderings.Held(shard)) {
		return &sharding.NotLeaderError{Shard: shard}
	}
	if !leads || at.Index <= s.deps.Orderings.Applied(shard)+1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	switch end, err := s.deps.Orderings.Committed(ctx, shard); {
	case err != nil:
		return &sharding.NotLeaderError{Shard: shard}
	case at.Index > end+1:
		return errAheadOfLog
	}
	return nil
}

// confirmTime bounds the wait for a quorum's word that this node leads.
const confirmTime = 5 * time.Second

// stretch gives the events of the next rows up to the index end. It returns the
// position behind them; all says that nothing is left.
func (src *source) stretch(ctx context.Context, shard sharding.ShardID, at cursor.Position, end uint64) (_ cursor.Position, all bool, err error) {
	orderings, m := src.sub.service.deps.Orderings, src.sub.request
	rows := make([]OrderRow, 0, 8)
	next, err := orderings.Rows(ctx, shard, OrderQuery{Type: m.GetEntityType(), Tag: m.GetTag(), From: at.Index}, func(row OrderRow) error {
		switch {
		case row.At.Index > end || len(rows) == orderRows:
			return errEnough
		case row.At.Index == at.Index && row.At.Ordinal < at.Ordinal:
			return nil
		}
		rows = append(rows, row)
		return nil
	})
	switch {
	case err == nil:
		all, next = true, min(next, end+1)
	case errors.Is(err, errEnough):
		all, next = len(rows) < orderRows, end+1
	default:
		return at, false, err
	}
	err = nil
	for _, row := range rows {
		if at, err = src.record(ctx, shard, row, at); err != nil {
			return at, false, err
		}
	}
	if all && next > at.Index {
		at = cursor.Position{Index: next}
		err = src.give(ctx, arrival{places: []cursor.Place{{Shard: uint32(shard), Position: at}}})
	}
	return at, all, err
}

// record gives the events of one row from the position on.
func (src *source) record(ctx context.Context, shard sharding.ShardID, row OrderRow, at cursor.Position) (cursor.Position, error) {
	s := src.sub.service
	var events []*entityv1.SubscribeResponse // nil where the tag is missing
	found := false
	err := s.deps.Histories.Read(ctx, row.Entity, row.First, func(rec *journal.Record) error {
		found = rec.Expected+1 == row.First
		for i := range rec.Events {
			events = append(events, src.event(rec, i))
		}
		return errEnough
	})
	skip := 0
	if at.Index == row.At.Index && at.Ordinal == row.At.Ordinal {
		skip = int(at.Events)
	}
	var cut *journal.CutError
	if errors.As(err, &cut) && src.sub.request.GetSkipCut() {
		src.skipped += uint64(max(row.Events-skip, 0))
		return cursor.Position{Index: row.At.Index, Ordinal: row.At.Ordinal + 1}, nil
	}
	if err != nil && !errors.Is(err, errEnough) {
		return at, err
	}
	if !found {
		return at, src.missing(shard, row)
	}
	for i, event := range events {
		if i < skip || event == nil {
			continue
		}
		at = cursor.Position{Index: row.At.Index, Ordinal: row.At.Ordinal, Events: uint32(i + 1)}
		if err := src.give(ctx, arrival{places: []cursor.Place{{Shard: uint32(shard), Position: at}}, event: event, shard: shard}); err != nil {
			return at, err
		}
	}
	return at, nil
}

// missing is the error of a row whose record is not there: the replica went
// between the two readings, or the journal has lost it.
func (src *source) missing(shard sharding.ShardID, row OrderRow) error {
	o := src.sub.service.deps.Orderings
	if o.Held(shard) && o.Applied(shard) >= row.At.Index {
		return journal.ErrDamaged
	}
	return &sharding.NotLeaderError{Shard: shard}
}

// event makes the message of one event of a record; nil when the tag is not on
// it.
func (src *source) event(rec *journal.Record, i int) *entityv1.SubscribeResponse {
	event := &rec.Events[i]
	if tag := src.sub.request.GetTag(); tag != "" && !slices.Contains(event.Tags, tag) {
		return nil
	}
	out := &entityv1.SubscribeResponse{
		EntityId:     rec.Entity.ID,
		Sequence:     uint64(rec.Expected) + uint64(i) + 1,
		EventType:    event.Type,
		CommandId:    string(rec.CommandID),
		RecordedAt:   timestamppb.New(time.Unix(0, rec.RecordedAt)),
		Tags:         event.Tags,
		ModuleDigest: rec.Module.String(),
	}
	if v, data := render(src.sub.kind, event.Payload); v != nil {
		out.Payload = &entityv1.SubscribeResponse_Json{Json: v}
	} else if len(data) > 0 {
		out.Payload = &entityv1.SubscribeResponse_Data{Data: bytes.Clone(data)}
	}
	return out
}
