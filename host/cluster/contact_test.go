package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// elsewhere is the metadata of a node that does not lead its shard. A leader
// can be asked, unless parted is set.
type elsewhere struct {
	index  uint64
	asked  atomic.Int64
	parted atomic.Bool
}

func (e *elsewhere) Propose(context.Context, sharding.NodeID, []byte) ([]byte, error) {
	return nil, peer.ErrUnavailable
}

func (e *elsewhere) IsAlive(sharding.NodeID) bool { return true }

func (e *elsewhere) ReadMeta(context.Context, sharding.NodeID) (uint64, error) {
	e.asked.Add(1)
	if e.parted.Load() {
		return 0, peer.ErrUnavailable
	}
	return e.index, nil
}

func following(e *elsewhere, now func() time.Time) *Metadata {
	m := NewMetadata(meta.New(), 3)
	m.contact.open(now)
	m.Start(nil, e, onlyOn("n1"))
	m.LeaderChanged(1, 1, false)
	return m
}

// The age counts from the start of the last completed read. A failed read does
// not reduce it.
func TestMetadataAgeCountsFromLastRead(t *testing.T) {
	now := time.Unix(1000, 0)
	e := &elsewhere{index: 3}
	m := following(e, func() time.Time { return now })
	if m.IsFresh() {
		t.Error("fresh before anything was read")
	}
	if err := m.CatchUp(t.Context()); err != nil || m.age() != 0 || !m.IsFresh() {
		t.Fatalf("read: age %v, %v", m.age(), err)
	}
	now = now.Add(maxAge)
	if !m.IsFresh() {
		t.Errorf("too old at %v", m.age())
	}
	now = now.Add(1)
	if m.IsFresh() {
		t.Errorf("fresh at %v", m.age())
	}
	e.parted.Store(true)
	if err := m.refresh(t.Context()); err == nil || m.IsFresh() {
		t.Errorf("nobody was reached: age %v, %v", m.age(), err)
	}
	e.parted.Store(false)

	// A confirmed index counts only when it is applied here.
	e.index = 4
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := m.CatchUp(short); err == nil || m.IsFresh() {
		t.Errorf("what was committed is not applied here: age %v, %v", m.age(), err)
	}
	e.index = 3
	if err := m.refresh(t.Context()); err != nil || m.age() != 0 {
		t.Errorf("read again: age %v, %v", m.age(), err)
	}
	// A read that began earlier and ends now must not increase the age.
	if err := m.reach(t.Context(), now.Add(-time.Hour), 3); err != nil || m.age() != 0 {
		t.Errorf("an old reading: age %v, %v", m.age(), err)
	}
}

// A node reads the metadata about four times per maxAge even if nobody asks
// for it. If the reads fail, the age of its metadata grows.
func TestIdleNodeRefreshesMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &elsewhere{index: 3}
		m := following(e, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { m.Refresh(ctx); close(ended) }()
		synctest.Wait()
		for range 600 {
			if !m.IsFresh() {
				t.Fatalf("the node is idle, and its metadata is %v old", m.age())
			}
			time.Sleep(time.Second)
		}
		if n := e.asked.Load(); n > 41 {
			t.Errorf("%d readings in ten minutes", n)
		}
		e.parted.Store(true)
		time.Sleep(maxAge + time.Second)
		if m.IsFresh() {
			t.Errorf("nobody is heard: age %v", m.age())
		}
		e.parted.Store(false)
		time.Sleep(2 * refreshAgain)
		if !m.IsFresh() {
			t.Errorf("the leader is heard again: age %v", m.age())
		}
		cancel()
		<-ended
	})
}

// The metadata of a cluster's only node is fresh, because the node asks
// itself.
func TestSingleNodeIsFresh(t *testing.T) {
	m, _ := newMetadata(t)
	if err := m.refresh(t.Context()); err != nil || !m.IsFresh() {
		t.Errorf("age %v, %v", m.age(), err)
	}
}
