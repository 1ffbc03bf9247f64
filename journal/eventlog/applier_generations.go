package eventlog

import (
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// InstalledSink is an AppliedSink that is also notified when a snapshot has
// replaced a shard's state. The following results are for entries after the
// snapshot's index.
type InstalledSink interface{ OnInstalled(Installed) }

// Drop ends the shard's generation on this node after the entries that were
// passed to Apply earlier are applied; next is the following generation. The
// old data is deleted in the background.
func (a *Applier) Drop(shard sharding.ShardID, next uint32) {
	a.m.durable.Begin(shard, next)
	a.enqueue(queuedWork{do: func() { a.m.Drop(shard, next) }})
}

// Install starts a generation of the shard from a snapshot, after the entries
// that were passed to Apply earlier are applied. Entries that are passed to
// Apply later follow the snapshot. Once Install has returned, no earlier
// generation is reported as durable.
func (a *Applier) Install(shard sharding.ShardID, generation uint32, s statefile.Install) {
	a.m.durable.Begin(shard, generation)
	if !a.enqueue(queuedWork{do: func() { a.m.Install(shard, generation, s) }}) && s.Stream != nil {
		s.Stream.Close() // nothing is lost: the log and the snapshot's file still have it
	}
}

// StateIndex is Machine.StateIndex.
func (a *Applier) StateIndex(shard sharding.ShardID) (index uint64, term sharding.Term) {
	return a.m.StateIndex(shard)
}

// Pin is Machine.Pin.
func (a *Applier) Pin(shard sharding.ShardID) (statefile.Pinned, error) {
	e, err := a.m.Pin(shard)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// work does one piece of background work.
func (a *Applier) work() {
	s := a.m.Work()
	if a.m.Err() != nil {
		return
	}
	if s.Installed != nil {
		if sink, ok := a.opts.Sink.(InstalledSink); ok {
			sink.OnInstalled(*s.Installed)
		}
	}
	if len(s.Verdicts) > 0 {
		a.opts.Sink.OnApplied(s.Verdicts)
	}
}
