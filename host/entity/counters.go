package entity

import (
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/host/request"
)

// TypeStats counts what the entities of one type have done in an executor.
type TypeStats struct {
	Commands uint64 // that were given to a guest, whatever came of them
	Fuel     uint64 // that they cost
	Events   uint64 // that they made
	Rejected uint64 // of the commands
	Faults   uint64 // guest calls that failed, loads too
	Resident int64  // that are in memory now
}

// typeCounter counts for one type. It is safe for concurrent use.
type typeCounter struct {
	commands, fuel           atomic.Uint64
	events, rejected, faults atomic.Uint64
	resident                 atomic.Int64
	took                     *request.Took
}

// Command counts one that was given to a guest, and returns where it is counted
// how long it took; nil for nowhere.
func (t *typeCounter) Command(fuel uint64) *request.Took {
	t.commands.Add(1)
	t.fuel.Add(fuel)
	return t.took
}

// Events counts those that a command made.
func (t *typeCounter) Events(n int) { t.events.Add(uint64(n)) }

// Rejection counts a command that the guest refused.
func (t *typeCounter) Rejection() { t.rejected.Add(1) }

// Fault counts a guest call that failed by the guest's fault.
func (t *typeCounter) Fault() { t.faults.Add(1) }

// Resident counts entities that came into memory, or left it.
func (t *typeCounter) Resident(n int64) { t.resident.Add(n) }

// Stats is what was counted.
func (t *typeCounter) Stats() TypeStats {
	return TypeStats{
		Commands: t.commands.Load(), Fuel: t.fuel.Load(), Resident: t.resident.Load(),
		Events: t.events.Load(), Rejected: t.rejected.Load(), Faults: t.faults.Load(),
	}
}

// typeCounters are an executor's, by entity type. The executor's goroutine adds types, of
// which there are as many as are bound to modules; any may ask for Stats.
type typeCounters struct {
	Table *StageTable // nil: no times are counted

	mu  sync.Mutex
	all map[string]*typeCounter
}

// Of returns the counter of a type.
func (t *typeCounters) Of(entityType string) *typeCounter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = make(map[string]*typeCounter)
	}
	if t.all[entityType] == nil {
		t.all[entityType] = &typeCounter{took: t.Table.Of(entityType)}
	}
	return t.all[entityType]
}

// Stats returns the counters by entity type.
func (t *typeCounters) Stats() map[string]TypeStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]TypeStats, len(t.all))
	for name, n := range t.all {
		out[name] = n.Stats()
	}
	return out
}
