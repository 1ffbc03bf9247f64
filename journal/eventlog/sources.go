package eventlog

import (
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/outbox"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// ErrStopReading ends a message read without an error.
var ErrStopReading = outbox.ErrStopReading

// boxes adapts a Reader to outbox.Source.
type boxes struct{ r *Reader }

func (b boxes) Box(id sharding.ShardID) (at outbox.Moment) {
	b.r.mu.RLock()
	if sh := b.r.shards[id]; sh != nil {
		at.Box, at.Err = sh.outbox, sh.readError()
		at.Applied, at.Flushed, at.Importing = sh.applied.Index, sh.flushed.Index, sh.isImporting()
	}
	return at
}

func (b boxes) View() (kv.View, error) { return b.r.view() }

func (b boxes) Unlock() { b.r.mu.RUnlock() }

// timerSets adapts a Reader to timers.Source.
type timerSets struct{ r *Reader }

func (t timerSets) Timers(id sharding.ShardID, alone bool) (*timers.Set, error) {
	if alone {
		t.r.mu.Lock()
	} else {
		t.r.mu.RLock()
	}
	switch sh := t.r.shards[id]; {
	case sh == nil || sh.isImporting():
		return nil, nil
	case sh.installing != nil:
		return nil, ErrInstalling // the store has only some rows of the snapshot
	default:
		return sh.timers, nil
	}
}

func (t timerSets) Head(id sharding.ShardID, entity string) (h store.Head, ok bool) {
	if in := t.r.shards[id].heads[entity]; in != nil {
		return in.Head, true
	}
	return h, false
}

func (t timerSets) View() (kv.View, error) { return t.r.view() }

func (t timerSets) Unlock(alone bool) {
	if alone {
		t.r.mu.Unlock()
	} else {
		t.r.mu.RUnlock()
	}
}
