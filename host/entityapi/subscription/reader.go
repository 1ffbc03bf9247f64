package subscription

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hostd/hostd/api/cursor"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge/codec"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// orderRows is how many rows of a shard are read at a time.
const orderRows = 128

// reader reads some shards at one node, in its own goroutine. It ends when it
// has reached the requested end, or with an error.
type reader struct {
	sub    *subscription
	node   sharding.NodeID // empty if it is this node
	shards []sharding.ShardID
	cancel context.CancelFunc
	gone   chan struct{} // closed when the reader has ended
	err    error         // why the reader ended; set before gone is closed

	from    cursor.Cursor // the positions of its shards when the reader was started
	skipped uint64        // compacted events since the last arrival
}

// start starts a reader at the current positions of the shards.
func (s *subscription) start(ctx context.Context, node sharding.NodeID, shards []sharding.ShardID) {
	ctx, cancel := context.WithCancel(ctx)
	rdr := &reader{
		sub: s, node: node, shards: shards, cancel: cancel, gone: make(chan struct{}),
		from: cursor.Cursor{Mark: s.mark, Shards: uint32(len(s.at) - 1), Places: s.places(shards)},
	}
	s.readers[node] = rdr
	go func() {
		defer close(rdr.gone)
		defer cancel()
		if node == "" {
			rdr.err = rdr.readLocal(ctx)
		} else {
			rdr.err = rdr.readRemote(ctx)
		}
		select {
		case s.ended <- rdr:
		case <-ctx.Done():
		}
	}()
}

func (rdr *reader) deliver(ctx context.Context, it arrival) error {
	it.skipped += rdr.skipped
	rdr.skipped = 0
	select {
	case rdr.sub.items <- it:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readRemote passes on the events that a different node reads.
func (rdr *reader) readRemote(ctx context.Context) error {
	client, err := rdr.sub.service.Proxy.Client(rdr.node)
	if err != nil {
		return err
	}
	m := rdr.sub.request
	req := &entityv1.SubscribeEventsRequest{
		EntityType: m.GetEntityType(), Tag: m.GetTag(), Follow: m.GetFollow(), Cursor: rdr.from.Text(),
		AsData: m.GetAsData(), PartialCursors: true, SkipTruncated: m.GetSkipTruncated(), Upcast: m.GetUpcast(), FromNewest: m.GetFromNewest(),
	}
	for _, shard := range rdr.shards {
		req.Shards = append(req.Shards, uint32(shard))
	}
	in, err := client.SubscribeEvents(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	defer in.Close()
	unplaced := m.GetFromNewest() && len(rdr.from.Places) < len(rdr.shards)
	for in.Receive() {
		c, err := cursor.Parse(in.Msg().GetCursor())
		if err != nil || c.Shards != rdr.from.Shards {
			return errors.New("another node returned a malformed cursor")
		}
		it := arrival{places: c.Places, skipped: in.Msg().GetSkipped()}
		if in.Msg().GetSequence() > 0 {
			it.event = in.Msg()
			it.shard = rdr.sub.service.Sharding.ShardOf(sharding.EntityID{Type: m.GetEntityType(), ID: it.event.GetEntityId()})
		}
		switch {
		case it.event == nil:
			unplaced = false
		case unplaced && !slices.ContainsFunc(rdr.from.Places, func(p cursor.Place) bool { return p.Shard == uint32(it.shard) }):
			return errNoNewest
		}
		if err := rdr.deliver(ctx, it); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil || !m.GetFollow() {
		return err
	}
	return request.ErrUnreachable
}

// errNoNewest: a node of an earlier release ignored from_newest and began at the
// first event.
var errNoNewest = status.New(connect.CodeUnimplemented, "a node of an earlier release cannot start at the newest event")

// readLocal reads this node's replicas, one after the other. It subscribes to
// changes before it reads, so that no event is missed.
func (rdr *reader) readLocal(ctx context.Context) error {
	s := rdr.sub.service
	at := make([]cursor.Position, len(rdr.shards))
	for i, shard := range rdr.shards {
		for _, p := range rdr.from.Places {
			if p.Shard == uint32(shard) {
				at[i] = p.Position
			}
		}
	}
	if !rdr.sub.follow {
		for i, shard := range rdr.shards {
			if err := rdr.readToEnd(ctx, shard, at[i]); err != nil {
				return err
			}
		}
		return nil
	}
	changed, stop := s.EventOrder.Watch(rdr.shards)
	defer stop()
	looked := make([]uint64, len(rdr.shards))
	for {
		more := false
		for i, shard := range rdr.shards {
			if err := rdr.check(ctx, shard, at[i]); err != nil {
				return err
			}
			end := s.EventOrder.AppliedIndex(shard)
			if at[i] == (cursor.Position{}) && rdr.sub.request.GetFromNewest() {
				newest, err := rdr.rows(ctx, shard, cursor.Position{Index: end + 1}, end, func(OrderRow) error { return nil })
				if err != nil {
					return err
				}
				at[i] = newest
				if err := rdr.deliver(ctx, arrival{places: []cursor.Place{{Shard: uint32(shard), Position: at[i]}}}); err != nil {
					return err
				}
			}
			if end == looked[i] {
				continue
			}
			next, all, err := rdr.sendRows(ctx, shard, at[i], end)
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

// readToEnd reads a shard that this node leads, up to the index that is applied
// when the read starts.
func (rdr *reader) readToEnd(ctx context.Context, shard sharding.ShardID, at cursor.Position) error {
	s := rdr.sub.service
	if err := rdr.check(ctx, shard, at); err != nil {
		return err
	}
	end := s.EventOrder.AppliedIndex(shard)
	for all := false; !all; {
		var err error
		if at, all, err = rdr.sendRows(ctx, shard, at, end); err != nil {
			return err
		}
	}
	// A replica that was removed meanwhile reads as empty.
	if !s.Proxy.Leads(shard) {
		return &sharding.NotLeaderError{Shard: shard}
	}
	return nil
}

// check returns an error if the shard should no longer be read on this node, or
// if the position is not in its log. Only the leader is sure to have the whole
// log. But the leader may have applied less than the replica that the position
// comes from, and after a pause it may not know that it has lost the
// leadership. So a quorum confirms the commit index first.
func (rdr *reader) check(ctx context.Context, shard sharding.ShardID, at cursor.Position) error {
	s := rdr.sub.service
	leads := s.Proxy.Leads(shard)
	if !leads && (!rdr.sub.follow || !s.EventOrder.HasReplica(shard)) {
		return &sharding.NotLeaderError{Shard: shard}
	}
	if !leads || at.Index <= s.EventOrder.AppliedIndex(shard)+1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	switch end, err := s.EventOrder.CommittedIndex(ctx, shard); {
	case err != nil:
		return &sharding.NotLeaderError{Shard: shard}
	case at.Index > end+1:
		return errAheadOfLog
	}
	return nil
}

// Both errors mean that the position belongs to a history that no longer exists:
// the log has fewer entries, or different ones. The caller must start from the
// beginning.
var (
	errAheadOfLog   = &historyLostError{"the cursor is ahead of the log"}
	errOtherHistory = &historyLostError{"the log has different events before the cursor than the subscriber received"}
)

// historyLostError is the error for a caller that continues from a position in
// a history that no longer exists.
type historyLostError struct{ what string }

func (e *historyLostError) Error() string {
	return e.what + ": its history no longer exists, for example after a restore from a backup; discard everything derived from its events, and subscribe from the beginning"
}

// Code implements status.Coded. Positions outside of the log have the same
// code as positions before compacted events; the reason in Detail
// distinguishes them.
func (e *historyLostError) Code() connect.Code { return connect.CodeOutOfRange }

// Detail implements status.Detailed.
func (e *historyLostError) Detail() proto.Message { return status.Reason(status.ReasonHistoryLost) }

// confirmTime limits the wait until a quorum confirms that this node leads.
const confirmTime = 5 * time.Second

// rows calls fn with the rows of the subscription from a position up to the
// index end. It first checks the history before the position.
func (rdr *reader) rows(ctx context.Context, shard sharding.ShardID, at cursor.Position, end uint64, fn func(OrderRow) error) (next cursor.Position, err error) {
	m := rdr.sub.request
	next, err = rdr.sub.service.EventOrder.Rows(ctx, shard, OrderQuery{Type: m.GetEntityType(), Tag: m.GetTag(), From: at, UpTo: end}, fn)
	if errors.Is(err, journal.ErrOtherHistory) {
		err = errOtherHistory
	}
	return next, err
}

// sendRows sends the events of the next rows up to the index end. It returns the
// position after them; all means that no rows are left.
func (rdr *reader) sendRows(ctx context.Context, shard sharding.ShardID, at cursor.Position, end uint64) (_ cursor.Position, all bool, err error) {
	rows := make([]OrderRow, 0, 8)
	next, err := rdr.rows(ctx, shard, at, end, func(row OrderRow) error {
		switch {
		case len(rows) == orderRows:
			return errEndReached
		case row.At.Index == at.Index && row.At.Ordinal < at.Ordinal:
			return nil
		}
		rows = append(rows, row)
		return nil
	})
	all = err == nil
	if err != nil && !errors.Is(err, errEndReached) {
		return at, false, err
	}
	err = nil
	for _, row := range rows {
		if at, err = rdr.record(ctx, shard, row, at); err != nil {
			return at, false, err
		}
	}
	if all && next.Index > at.Index {
		at = next
		err = rdr.deliver(ctx, arrival{places: []cursor.Place{{Shard: uint32(shard), Position: at}}})
	}
	return at, all, err
}

// record sends the events of one row from a position on.
func (rdr *reader) record(ctx context.Context, shard sharding.ShardID, row OrderRow, at cursor.Position) (cursor.Position, error) {
	s := rdr.sub.service
	var events []*entityv1.SubscribeEventsResponse // entries are nil for events without the tag
	found := false
	err := s.Histories.Read(ctx, row.Entity, row.First, func(rec *journal.Record) error {
		found = rec.Expected+1 == row.First
		for i := range rec.Events {
			event, err := rdr.event(ctx, rec, i)
			if err != nil {
				return err
			}
			events = append(events, event)
		}
		return errEndReached
	})
	skip := 0
	if at.Index == row.At.Index && at.Ordinal == row.At.Ordinal {
		skip = int(at.Events)
	}
	var cut *journal.TruncatedError
	if errors.As(err, &cut) && rdr.sub.request.GetSkipTruncated() {
		rdr.skipped += uint64(max(row.Events-skip, 0))
		return cursor.Position{Index: row.At.Index, Ordinal: row.At.Ordinal + 1, History: row.History}, nil
	}
	if err != nil && !errors.Is(err, errEndReached) {
		return at, err
	}
	if !found {
		return at, rdr.missing(shard, row)
	}
	for i, event := range events {
		if i < skip || event == nil {
			continue
		}
		at = cursor.Position{Index: row.At.Index, Ordinal: row.At.Ordinal, Events: uint32(i + 1), History: row.History}
		if err := rdr.deliver(ctx, arrival{places: []cursor.Place{{Shard: uint32(shard), Position: at}}, event: event, shard: shard}); err != nil {
			return at, err
		}
	}
	return at, nil
}

// missing returns the error for a row whose record does not exist: the replica
// was removed between the two reads, or the journal has lost the record.
func (rdr *reader) missing(shard sharding.ShardID, row OrderRow) error {
	o := rdr.sub.service.EventOrder
	if o.HasReplica(shard) && o.AppliedIndex(shard) >= row.At.Index {
		return journal.ErrDamaged
	}
	return &sharding.NotLeaderError{Shard: shard}
}

// event makes the message of one event of a record; nil if the event does not
// have the requested tag.
func (rdr *reader) event(ctx context.Context, rec *journal.Record, i int) (*entityv1.SubscribeEventsResponse, error) {
	event := &rec.Events[i]
	if tag := rdr.sub.request.GetTag(); tag != "" && !slices.Contains(event.Tags, tag) {
		return nil, nil
	}
	f, err := rdr.sub.service.form(ctx, rec, i, rdr.sub.request.GetUpcast())
	if err != nil {
		return nil, err
	}
	out := &entityv1.SubscribeEventsResponse{
		EntityId:     rec.Entity.ID,
		Sequence:     uint64(rec.Expected) + uint64(i) + 1,
		EventType:    f.eventType,
		StoredType:   f.stored,
		CommandId:    string(rec.CommandID),
		RecordedAt:   timestamppb.New(time.Unix(0, rec.RecordedAt)),
		Tags:         event.Tags,
		ModuleDigest: rec.Module.String(),
		Principal:    PrincipalOf(rec),
	}
	if v, data := codec.Render(rdr.sub.kind, f.payload); v != nil {
		out.Payload = &entityv1.SubscribeEventsResponse_Json{Json: v}
	} else if len(data) > 0 {
		out.Payload = &entityv1.SubscribeEventsResponse_Data{Data: bytes.Clone(data)}
	}
	return out, nil
}
