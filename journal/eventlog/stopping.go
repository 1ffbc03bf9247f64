package eventlog

import (
	"errors"
	"maps"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Stopped says that a generation of a shard has stopped on this node: nothing
// of it is applied or read any more. The generation that follows it, as of a
// new replica or of a snapshot, begins anew.
type Stopped struct {
	Shard      sharding.ShardID
	Generation uint32 // the generation
	Err        *StoppedError
}

// Reason says what the stop means for the replica: an entry that this release
// does not know leaves its log as good as any, everything else is damage.
func (s Stopped) Reason() sharding.StopReason { return ReasonOf(s.Err) }

// ReasonOf is the reason of an error of Machine.Stopped.
func ReasonOf(stopped error) sharding.StopReason {
	switch {
	case stopped == nil:
		return sharding.NotStopped
	case errors.Is(stopped, journal.ErrUnsupported):
		return sharding.StopUnsupported
	}
	return sharding.StopDamaged
}

// Stop stops the present generation of a shard on this node, for a reason found
// outside of applying: a read or a scrub that met damage. A shard that has
// stopped already keeps its first reason. It is for the applying goroutine; see
// Applier.Stop.
func (m *Machine) Stop(id sharding.ShardID, cause error) {
	if sh := m.shard(id); sh.stopped == nil {
		m.stop(sh, cause)
	}
}

// stop stops a shard that has not stopped: all who read it are told.
func (m *Machine) stop(sh *shard, cause error) *StoppedError {
	stopped := &StoppedError{Shard: sh.id, Index: sh.applied.Index, Cause: cause}
	m.mu.Lock()
	sh.stopped = stopped
	m.mu.Unlock()
	m.opts.Logger.Error("shard stopped", "shard_id", uint64(sh.id), "index", stopped.Index, "error", cause)
	m.subs.WakeShard(sh.id)
	m.opts.Stopped(Stopped{Shard: sh.id, Generation: sh.generation, Err: stopped})
	return stopped
}

// Stopped returns why the shard has stopped, nil if it has not.
func (r *Reader) Stopped(id sharding.ShardID) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil && sh.stopped != nil {
		return sh.stopped
	}
	return nil
}

// StoppedShards returns why each shard that has stopped did.
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

// unreadable says why nothing of the shard can be read now, nil if it can. It
// is called with the lock held.
func (sh *shard) unreadable() error {
	switch {
	case sh.installing != nil:
		return ErrInstalling
	case sh.stopped != nil:
		return sh.stopped
	}
	return nil
}

// Stop stops a shard on this node, after what was given to Apply before: its
// replica steps aside, and is replaced where others have the shard. Whoever
// finds damage in what this node has of a shard calls it, from any goroutine;
// an error that wraps journal.ErrUnsupported says that this release cannot read
// what is healthy, any other that it is damaged. More than once does no harm.
// It waits for room in the queue, and does nothing once the Applier has ended.
func (a *Applier) Stop(shard sharding.ShardID, cause error) {
	a.put(queued{do: func() { a.m.Stop(shard, cause) }})
}

// StopAll is Stop for every shard that this node has anything of: damage in the
// store that may be anybody's.
func (a *Applier) StopAll(cause error) {
	a.put(queued{do: func() {
		for _, id := range a.m.known() {
			a.m.Stop(id, cause)
		}
	}})
}

// known are the shards of which there is anything, by number.
func (m *Machine) known() []sharding.ShardID {
	return slices.Sorted(maps.Keys(m.shards))
}
