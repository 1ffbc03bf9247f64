package entity

import (
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/host/request"
)

// TypeStats counts the work of a type's entities in an executor.
type TypeStats struct {
	Commands uint64 // commands passed to a guest, whatever the outcome
	Fuel     uint64 // fuel spent by commands
	Events   uint64 // events written by commands
	Rejected uint64 // commands rejected by the guest
	Faults   uint64 // failed guest calls, including loads
	Resident int64  // entities in memory now
}

// typeCounter holds the counters of one type. It is safe for concurrent use.
type typeCounter struct {
	commands, fuel           atomic.Uint64
	events, rejected, faults atomic.Uint64
	resident                 atomic.Int64
	took                     *request.Took
}

// Command counts a command passed to a guest. It returns the histogram for the
// command's duration, or nil if durations are not counted.
func (t *typeCounter) Command(fuel uint64) *request.Took {
	t.commands.Add(1)
	t.fuel.Add(fuel)
	return t.took
}

// Events counts events written by a command.
func (t *typeCounter) Events(n int) { t.events.Add(uint64(n)) }

// Rejection counts a command that the guest rejected.
func (t *typeCounter) Rejection() { t.rejected.Add(1) }

// Fault counts a guest call that failed by the guest's fault.
func (t *typeCounter) Fault() { t.faults.Add(1) }

// Resident counts entities that came into memory, or left it if n is negative.
func (t *typeCounter) Resident(n int64) { t.resident.Add(n) }

// Stats returns the counts.
func (t *typeCounter) Stats() TypeStats {
	return TypeStats{
		Commands: t.commands.Load(), Fuel: t.fuel.Load(), Resident: t.resident.Load(),
		Events: t.events.Load(), Rejected: t.rejected.Load(), Faults: t.faults.Load(),
	}
}

// typeCounters holds an executor's counters by entity type. The executor's
// goroutine adds types; their number is bounded by the types that were active
// on the node. Stats may be called from any goroutine.
type typeCounters struct {
	Table *StageTable // nil disables counting of durations

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
