package client

import (
	"context"
	"sync"
	"time"

	"github.com/hostd/hostd/api/cursor"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// defaultBatch is a projection's MaxEvents when that is 0.
const defaultBatch = 256

// Projection hands the events of a subscription to a function in batches:
// whatever has come while the one before was worked on. Storing a batch's
// cursor together with what was made of its events, in one transaction, and
// starting with the cursor stored last takes every event into account once.
type Projection struct {
	Client       *Client
	Subscription Subscription
	MaxEvents    int // of a batch, 256 when 0; as many wait beside it
	// Apply works on a batch. Its error ends Run.
	Apply func(ctx context.Context, b Batch) error
}

// Batch is some events in order and where to go on after the last of them. Its
// slice is Apply's to keep.
type Batch struct {
	Events []Delivery // their Cursor is that of the batch
	Cursor string
	// Lag is how long ago the last event was recorded, by the cluster's clock
	// against the one here.
	Lag time.Duration
}

// Run applies batches until ctx ends, Apply or the subscription fails, or,
// without Follow, all is applied. It joins what it starts.
func (p *Projection) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := &batches{most: p.MaxEvents, changed: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	if q.most <= 0 {
		q.most = defaultBatch
	}
	ended := make(chan error, 1)
	go func() {
		ended <- p.Client.subscribe(ctx, p.Subscription, func(m *entityv1.SubscribeResponse, moved *cursor.Cursor) bool {
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

// batches is what has come and is not applied.
type batches struct {
	most          int
	changed, room chan struct{} // of one slot: wake whoever takes, puts

	mu     sync.Mutex
	at     cursor.Cursor // behind the last of events
	events []Delivery
}

// put waits for room; it is false when ctx ends.
func (q *batches) put(ctx context.Context, m *entityv1.SubscribeResponse, moved *cursor.Cursor) bool {
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
