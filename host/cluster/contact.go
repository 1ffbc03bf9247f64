package cluster

import (
	"context"
	"sync/atomic"
	"time"
)

// maxAge is the maximum age of this node's metadata for decisions about
// callers, such as authorization.
const maxAge = time.Minute

// The period of Refresh is short enough that several reads may fail before
// maxAge has passed.
const (
	refreshEvery = 15 * time.Second
	refreshAgain = time.Second // pause after a failed read
	refreshTime  = 10 * time.Second
)

// contact is the latest time such that this node has applied everything that
// was committed before that time.
type contact struct {
	now   func() time.Time
	began time.Time    // start of the time scale of at
	at    atomic.Int64 // nanoseconds
}

// never is earlier than any contact.
const never = -1 << 62

func (c *contact) open(now func() time.Time) {
	c.now, c.began = now, now()
	c.at.Store(never)
}

// noteRead records a completed read that began at asked.
func (c *contact) noteRead(asked time.Time) {
	at := int64(asked.Sub(c.began))
	for {
		before := c.at.Load()
		if before >= at || c.at.CompareAndSwap(before, at) {
			return
		}
	}
}

// age returns how long ago this node had applied everything that the metadata
// shard had committed. If it never had, Age returns years. It does not block.
func (m *Metadata) age() time.Duration {
	return m.contact.now().Sub(m.contact.began) - time.Duration(m.contact.at.Load())
}

// IsFresh reports whether the age is at most maxAge.
func (m *Metadata) IsFresh() bool { return m.age() <= maxAge }

// Refresh reads the metadata periodically until ctx ends, so that Age is low
// on a node that can read the metadata, even if no caller asks for it. Each
// read is one ReadIndex of the metadata shard.
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

// refresh reads the metadata once.
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

// reach waits until the index of a read that began at asked is applied.
func (m *Metadata) reach(ctx context.Context, asked time.Time, index uint64) error {
	err := m.Await(ctx, index)
	if err == nil {
		m.contact.noteRead(asked)
	}
	return err
}
