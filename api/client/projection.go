package client

import (
	"context"
	"sync"
	"time"

	"github.com/hostd/hostd/api/cursor"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// defaultBatch is the default of a projection's MaxEvents.
const defaultBatch = 256

// Projection passes the events of a subscription to a function in batches. Each
// batch contains the events that arrived while the previous batch was being
// applied. If Apply stores the batch's cursor together with its results in one
// transaction, and the next run starts with the stored cursor, then every event
// is applied exactly once.
type Projection struct {
	Client       *Client
	Subscription Subscription
	MaxEvents    int // maximum size of a batch, default 256; the same number of events is prefetched
	// Apply applies a batch. If it returns an error, Run ends with it.
	Apply func(ctx context.Context, b Batch) error
}

// Batch is a list of events in order, with the cursor after the last event.
// Apply may keep its slice.
type Batch struct {
	Events []Delivery // the Cursor method of each returns the batch's cursor
	Cursor string
	// Lag is the time since the last event was recorded, as the difference
	// between the local clock and the cluster's.
	Lag time.Duration
}

// Run applies batches until ctx ends, until Apply or the subscription fails,
// or, without Follow, until everything is applied. It waits for the goroutine
// that it starts.
func (p *Projection) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := &batches{most: p.MaxEvents, changed: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	if q.most <= 0 {
		q.most = defaultBatch
	}
	ended := make(chan error, 1)
	go func() {
		ended <- p.Client.subscribe(ctx, p.Subscription, func(m *entityv1.SubscribeEventsResponse, moved *cursor.Cursor) bool {
			return q.put(ctx, m, moved)
		})
	}()
	for {
		select {
		case <-q.changed:
			if err := p.apply(ctx, q); err != nil {
				cancel()
				<-ended
				return err
			}
		case err := <-ended:
			if err == nil {
				err = ctx.Err()
			}
			if last := p.apply(ctx, q); last != nil {
				return last
			}
			return err
		}
	}
}

func (p *Projection) apply(ctx context.Context, q *batches) error {
	b := q.take()
	if len(b.Events) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	return p.Apply(ctx, b)
}

// batches holds the events that have arrived and are not applied.
type batches struct {
	most          int
	changed, room chan struct{} // one slot each: they wake the goroutine that takes batches, and the one that puts events

	mu     sync.Mutex
	at     cursor.Cursor // cursor after the last of events
	events []Delivery
}

// put waits for room. It returns false if ctx ends first.
func (q *batches) put(ctx context.Context, m *entityv1.SubscribeEventsResponse, moved *cursor.Cursor) bool {
	for {
		q.mu.Lock()
		if len(q.events) < q.most {
			q.at.Join(moved)
			if m.GetSequence() > 0 {
				q.events = append(q.events, delivery(m, nil))
			}
			q.mu.Unlock()
			signal(q.changed)
			return true
		}
		q.mu.Unlock()
		select {
		case <-q.room:
		case <-ctx.Done():
			return false
		}
	}
}

func (q *batches) take() Batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := Batch{Events: q.events}
	if len(b.Events) == 0 {
		return b
	}
	at := &cursor.Cursor{Mark: q.at.Mark, Shards: q.at.Shards, Places: append([]cursor.Place(nil), q.at.Places...)}
	for i := range b.Events {
		b.Events[i].at = at
	}
	b.Cursor = at.Text()
	b.Lag = time.Since(b.Events[len(b.Events)-1].RecordedAt)
	q.events = nil
	signal(q.room)
	return b
}
