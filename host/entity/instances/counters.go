package instances

import (
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/host/entity/stages"
	"github.com/hostd/hostd/host/request"
)

// TypeStats counts what the entities of one type have done in a lane.
type TypeStats struct {
	Commands uint64 // that were given to a guest, whatever came of them
	Fuel     uint64 // that they cost
	Resident int64  // that are in memory now
}

// Counter counts for one type. It is safe for concurrent use.
type Counter struct {
	commands, fuel atomic.Uint64
	resident       atomic.Int64
	took           *request.Took
}

// Command counts one that was given to a guest, and returns where it is counted
// how long it took; nil for nowhere.
func (t *Counter) Command(fuel uint64) *request.Took {
	t.commands.Add(1)
	t.fuel.Add(fuel)
	return t.took
}

// Resident counts entities that came into memory, or left it.
func (t *Counter) Resident(n int64) { t.resident.Add(n) }

// Stats is what was counted.
func (t *Counter) Stats() TypeStats {
	return TypeStats{Commands: t.commands.Load(), Fuel: t.fuel.Load(), Resident: t.resident.Load()}
}

// Counters are a lane's, by entity type. The lane's goroutine adds types, of
// which there are as many as are bound to modules; any may ask for Stats.
type Counters struct {
	Table *stages.Table // nil: no times are counted

	mu  sync.Mutex
	all map[string]*Counter
}

// Of returns the counter of a type.
func (t *Counters) Of(entityType string) *Counter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = make(map[string]*Counter)
	}
	if t.all[entityType] == nil {
		t.all[entityType] = &Counter{took: t.Table.Of(entityType)}
	}
	return t.all[entityType]
}

// Stats returns the counters by entity type.
func (t *Counters) Stats() map[string]TypeStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]TypeStats, len(t.all))
	for name, n := range t.all {
		out[name] = n.Stats()
	}
	return out
}
