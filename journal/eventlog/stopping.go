package eventlog

import (
	"errors"
	"maps"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Stopped reports that a generation of a shard has stopped on this node: it is
// no longer applied or read. The next generation, of a new replica or from a
// snapshot, starts fresh.
type Stopped struct {
	Shard      sharding.ShardID
	Generation uint32 // the generation that has stopped
	Err        *StoppedError
}

// Reason returns StopUnsupported if this release does not know an entry,
// because the replica's log is then still intact. For every other cause it
// returns StopDamaged.
func (s Stopped) Reason() sharding.StopReason { return ReasonOf(s.Err) }

// ReasonOf returns the reason for an error of Machine.StopError.
func ReasonOf(stopped error) sharding.StopReason {
	switch {
	case stopped == nil:
		return sharding.NotStopped
	case errors.Is(stopped, journal.ErrUnsupported):
		return sharding.StopUnsupported
	}
	return sharding.StopDamaged
}

// Stop stops the current generation of a shard on this node for a reason found
// outside of applying: a read or scrub that found damage. If the shard has
// already stopped, it keeps the first reason. Stop may only be called by the
// applying goroutine; see Applier.Stop.
func (m *Machine) Stop(id sharding.ShardID, cause error) {
	if sh := m.shard(id); sh.stopped == nil {
		m.stop(sh, cause)
	}
}

// stop stops a shard that has not stopped, and notifies its readers.
func (m *Machine) stop(sh *shard, cause error) *StoppedError {
	stopped := &StoppedError{Shard: sh.id, Index: sh.applied.Index, Cause: cause}
	m.mu.Lock()
	sh.stopped = stopped
	m.mu.Unlock()
	m.opts.Logger.Error("shard stopped on this node", "shard_id", uint64(sh.id), "index", stopped.Index, "error", cause)
	m.subs.WakeShard(sh.id)
	m.opts.Stopped(Stopped{Shard: sh.id, Generation: sh.generation, Err: stopped})
	return stopped
}

// StopError returns why the shard has stopped, nil if it has not.
func (r *Reader) StopError(id sharding.ShardID) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil && sh.stopped != nil {
		return sh.stopped
	}
	return nil
}

// StoppedShards returns all stopped shards with the reasons.
func (r *Reader) StoppedShards() map[sharding.ShardID]*StoppedError {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out map[sharding.ShardID]*StoppedError
	for id, sh := range r.shards {
		if sh.stopped == nil {
			continue
		}
		if out == nil {
			out = map[sharding.ShardID]*StoppedError{}
		}
		out[id] = sh.stopped
	}
	return out
}

// readError returns why the shard cannot be read now, nil if it can. The lock
// must be held.
func (sh *shard) readError() error {
	switch {
	case sh.installing != nil:
		return ErrInstalling
	case sh.stopped != nil:
		return sh.stopped
	}
	return nil
}

// Stop stops a shard on this node after the entries that were passed to Apply
// earlier are applied. The shard's replica steps aside and is replaced if other
// nodes have the shard. Stop is called from any goroutine that finds damage in
// the shard's data. If cause wraps journal.ErrUnsupported, the data is intact
// but this release cannot read it; otherwise the data is damaged. Stop may be
// called repeatedly. It blocks while the queue is full, and does nothing after
// the Applier has ended.
func (a *Applier) Stop(shard sharding.ShardID, cause error) {
	a.enqueue(queuedWork{do: func() { a.m.Stop(shard, cause) }})
}

// StopAll stops every shard that has data on this node, for damage in the store
// that cannot be attributed to one shard.
func (a *Applier) StopAll(cause error) {
	a.enqueue(queuedWork{do: func() {
		for _, id := range a.m.knownShards() {
			a.m.Stop(id, cause)
		}
	}})
}

// knownShards returns all shards that have any state, sorted.
func (m *Machine) knownShards() []sharding.ShardID {
	return slices.Sorted(maps.Keys(m.shards))
}
