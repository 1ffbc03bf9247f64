package cluster

import (
	"context"
	"sync/atomic"
	"time"
)

// MaxAge is how old what a node knows of the metadata may be where callers are
// held to what it says of them.
const MaxAge = time.Minute

// The pace of Refresh: several readings may fail before MaxAge has passed.
const (
	refreshEvery = 15 * time.Second
	refreshAgain = time.Second // after one that failed
	refreshTime  = 10 * time.Second
)

// contact is the last moment of which this node is known to have applied all
// that was committed before.
type contact struct {
	now   func() time.Time
	began time.Time    // what at counts from
	at    atomic.Int64 // nanoseconds
}

// never is longer ago than any contact.
const never = -1 << 62

func (c *contact) open(now func() time.Time) {
	c.now, c.began = now, now()
	c.at.Store(never)
}

// made is told when a reading began that has come to its end.
func (c *contact) made(asked time.Time) {
	at := int64(asked.Sub(c.began))
	for {
		before := c.at.Load()
		if before >= at || c.at.CompareAndSwap(before, at) {
			return
		}
	}
}

// Age is how long ago this node had applied all that the metadata shard had
// committed; years where it never had. It does not block.
func (m *Metadata) Age() time.Duration {
	return m.contact.now().Sub(m.contact.began) - time.Duration(m.contact.at.Load())
}

// Fresh reports that Age is at most MaxAge.
func (m *Metadata) Fresh() bool { return m.Age() <= MaxAge }

// Refresh reads the metadata again and again until ctx ends, so that Age says
// whether the node can, and not whether it was asked to. A reading is one round
// of the metadata shard.
func (m *Metadata) Refresh(ctx context.Context) {
	for {
		wait := refreshEvery
		if m.refresh(ctx) != nil {
			wait = refreshAgain
		}
		next := time.NewTimer(wait)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return
		}
	}
}

// refresh is one attempt to read the metadata.
func (m *Metadata) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refreshTime)
	defer cancel()
	asked := m.contact.now()
	index, err := m.readIndex(ctx)
	if err != nil {
		return err
	}
	return m.reach(ctx, asked, index)
}

// reach waits until an index is applied that a reading has brought.
func (m *Metadata) reach(ctx context.Context, asked time.Time, index uint64) error {
	err := m.Await(ctx, index)
	if err == nil {
		m.contact.made(asked)
	}
	return err
}
