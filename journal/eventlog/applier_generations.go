package eventlog

import (
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// InstalledSink is an AppliedSink that is told, too, when a shard's state was
// replaced by a snapshot: after that the verdicts go on behind its index.
type InstalledSink interface{ Installed(Installed) }

// Drop ends the shard's generation on this node, after what was given to Apply
// before; the next one has the generation. What the store has of it is deleted
// in the background.
func (a *Applier) Drop(shard sharding.ShardID, next uint32) {
	a.m.durable.Begin(shard, next)
	a.put(queued{do: func() { a.m.Drop(shard, next) }})
}

// Install begins a generation of the shard with a snapshot, after what was
// given to Apply before. What is given to Apply later follows the snapshot.
// From the return on, nothing of an earlier generation is called durable.
func (a *Applier) Install(shard sharding.ShardID, generation uint32, s statefile.Install) {
	a.m.durable.Begin(shard, generation)
	if !a.put(queued{do: func() { a.m.Install(shard, generation, s) }}) && s.Stream != nil {
		s.Stream.Close() // it is in the log, and in its file
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

// work does a piece of background work.
func (a *Applier) work() {
	s := a.m.Work()
	if a.m.Failed() != nil {
		return
	}
	if s.Installed != nil {
		if sink, ok := a.opts.Sink.(InstalledSink); ok {
			sink.Installed(*s.Installed)
		}
	}
	if len(s.Verdicts) > 0 {
		a.opts.Sink.Applied(s.Verdicts)
	}
}
