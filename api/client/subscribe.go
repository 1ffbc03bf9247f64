package client

import (
	"context"
	"iter"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/cursor"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// Subscription selects the events of an entity type.
type Subscription struct {
	EntityType string
	Tag        string   // only events with this tag; empty means all
	Cursor     string   // cursor of the last processed event; empty means the beginning
	Shards     []uint32 // only these shards; empty means all
	Follow     bool     // wait for more at the end
	// FromNewest starts at the newest event of each shard for which Cursor has
	// no position. It is meant to be used with Follow.
	FromNewest bool
	// SkipTruncated skips events that were truncated because the type does not
	// retain them. If it is not set, the first truncated event ends the
	// subscription with a *TruncatedError.
	SkipTruncated bool
	// Upcast returns events of older forms in the current form, upcast by the
	// module that serves the type.
	Upcast bool
	// Skipped, if it is not nil, is called with the number of truncated events
	// that were skipped, before the event that follows them is yielded. It runs
	// on the iterating goroutine; in a Projection it runs on a separate
	// goroutine, ahead of Apply.
	Skipped func(events uint64)
}

// Delivery is an event of a subscription, together with the cursor after it.
type Delivery struct {
	Event
	EntityID string
	at       *cursor.Cursor
}

// Cursor returns the cursor after this event. Call it before taking the next
// event, because it is computed on demand. Its length grows with the number of
// shards.
func (d Delivery) Cursor() string { return d.at.Text() }

// Subscribe iterates over the events of a type. It yields each event once, and
// the events of an entity in order. If a node fails, it continues at another
// node as long as ctx lasts or, without Follow, until too many attempts in a
// row have failed. Without Follow it ends at the newest event that was
// acknowledged before the call. An error ends it; a *TruncatedError means that
// the next event was truncated, and an error for which HistoryLost is true
// means that the history of the cursor is lost.
func (c *Client) Subscribe(ctx context.Context, s Subscription) iter.Seq2[Delivery, error] {
	return func(yield func(Delivery, error) bool) {
		var at cursor.Cursor
		err := c.subscribe(ctx, s, func(m *entityv1.SubscribeEventsResponse, moved *cursor.Cursor) bool {
			at.Join(moved)
			return m.GetSequence() == 0 || yield(delivery(m, &at), nil)
		})
		if err != nil {
			yield(Delivery{}, err)
		}
	}
}

func delivery(m *entityv1.SubscribeEventsResponse, at *cursor.Cursor) Delivery {
	return Delivery{EntityID: m.GetEntityId(), at: at, Event: Event{
		Sequence:     m.GetSequence(),
		Type:         m.GetEventType(),
		StoredType:   m.GetStoredType(),
		Data:         payload(m.GetData(), m.GetJson()),
		CommandID:    m.GetCommandId(),
		RecordedAt:   m.GetRecordedAt().AsTime(),
		Tags:         m.GetTags(),
		ModuleDigest: m.GetModuleDigest(),
		Principal:    principalOf(m.GetPrincipal()),
	}}
}

// subscribe calls show with every message and the positions that it advances,
// until show returns false.
func (c *Client) subscribe(ctx context.Context, s Subscription, show func(*entityv1.SubscribeEventsResponse, *cursor.Cursor) bool) error {
	var at cursor.Cursor
	req := &entityv1.SubscribeEventsRequest{
		EntityType: s.EntityType, Tag: s.Tag, Cursor: s.Cursor, Shards: s.Shards, Follow: s.Follow, AsData: true, PartialCursors: true, SkipTruncated: s.SkipTruncated, Upcast: s.Upcast, FromNewest: s.FromNewest,
	}
	pause := newBackoff(c.opts)
	for failures := 0; ; {
		n, place := c.current()
		came := false
		ended, err := subscribeOnce(ctx, n, req, func(m *entityv1.SubscribeEventsResponse, moved *cursor.Cursor) bool {
			came = true
			at.Join(moved)
			if n := m.GetSkipped(); n > 0 && s.Skipped != nil {
				s.Skipped(n)
			}
			return show(m, moved)
		})
		if ended {
			return nil
		}
		if came {
			failures, req.Cursor = 0, at.Text()
			pause.reset()
		}
		failures++
		if !judge(err).retry || ctx.Err() != nil || !s.Follow && failures > maxReadFailures {
			return clientError(err)
		}
		c.next(place)
		if pause.wait(ctx) != nil {
			return clientError(err)
		}
	}
}

// subscribeOnce reads from one node; ended means that the caller wants no more.
func subscribeOnce(ctx context.Context, n *node, req *entityv1.SubscribeEventsRequest, show func(*entityv1.SubscribeEventsResponse, *cursor.Cursor) bool) (ended bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := n.entities.SubscribeEvents(ctx, connect.NewRequest(req))
	if err != nil {
		return false, err
	}
	defer stream.Close()
	for stream.Receive() {
		moved, err := cursor.Parse(stream.Msg().GetCursor())
		if err != nil {
			return false, connect.NewError(connect.CodeInternal, err)
		}
		if !show(stream.Msg(), &moved) {
			return true, nil
		}
	}
	if err := stream.Err(); err != nil {
		return false, err
	}
	return true, nil
}
