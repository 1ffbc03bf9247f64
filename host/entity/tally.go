package entity

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/journal"
)

// TypeStats counts what the entities of one type have done in a lane.
type TypeStats struct {
	Commands uint64 // that were given to a guest, whatever came of them
	Fuel     uint64 // that they cost
	Resident int64  // that are in memory now
}

type typeTally struct {
	commands, fuel atomic.Uint64
	resident       atomic.Int64
}

func (t *typeTally) add(fuel uint64) {
	t.commands.Add(1)
	t.fuel.Add(fuel)
}

// typeTallies are a lane's, by entity type. The lane's goroutine adds types,
// of which there are as many as are bound to modules.
type typeTallies struct {
	mu  sync.Mutex
	all map[string]*typeTally
}

func (t *typeTallies) of(entityType string) *typeTally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = make(map[string]*typeTally)
	}
	if t.all[entityType] == nil {
		t.all[entityType] = &typeTally{}
	}
	return t.all[entityType]
}

// TypeStats returns the lane's counters by entity type.
func (l *Lane) TypeStats() map[string]TypeStats {
	t := &l.core.types
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]TypeStats, len(t.all))
	for name, n := range t.all {
		out[name] = TypeStats{Commands: n.commands.Load(), Fuel: n.fuel.Load(), Resident: n.resident.Load()}
	}
	return out
}

// fuelSection notes in a record what its command has cost.
func (c *core) fuelSection(rec *journal.Record) {
	if c.fuel == 0 {
		return
	}
	binary.LittleEndian.PutUint64(c.fuelBuf[:], c.fuel)
	c.fuel = 0
	rec.Sections = append(rec.Sections, journal.Section{Kind: journal.SectionFuel, Data: c.fuelBuf[:]})
}

// tally returns the counters of a type of the pool's module.
func (p *pool) tally(c *core, t *Type) *typeTally {
	for int(t.Index) >= len(p.tallies) {
		p.tallies = append(p.tallies, nil)
	}
	if p.tallies[t.Index] == nil {
		p.tallies[t.Index] = c.types.of(t.Name)
	}
	return p.tallies[t.Index]
}
