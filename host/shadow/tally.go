package shadow

import (
	"sync"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// maxExamples is how many commands are named that differ.
const maxExamples = 20

// Example is a command on which the two modules decided otherwise.
type Example struct {
	Entity   sharding.EntityID
	Sequence journal.Sequence // of the entity's last event before it
	Command  string
	In       Difference
	Fault    string // of the other module; empty for none
}

// Tally sums what was compared. It is safe for concurrent use.
type Tally struct {
	mu  sync.Mutex
	sum Sum
}

// Sum is what was compared of a type.
type Sum struct {
	Compared uint64
	By       [6]uint64 // how many differ, by the bits of Difference
	Differ   uint64    // in anything
	Dropped  uint64    // there was no room for, or no state
	Fuel     uint64    // of the module that serves, for what was compared
	Other    uint64    // of the other one
	Examples []Example // the first ones, at most maxExamples
}

// Add counts a command that was compared: e says in what it differs.
func (t *Tally) Add(e Example, fuel, other uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Compared++
	t.sum.Fuel += fuel
	t.sum.Other += other
	if e.In == 0 {
		return
	}
	t.sum.Differ++
	for i := range t.sum.By {
		if e.In&(1<<i) != 0 {
			t.sum.By[i]++
		}
	}
	if len(t.sum.Examples) < maxExamples {
		t.sum.Examples = append(t.sum.Examples, e)
	}
}

// Skip counts a command that could not be compared.
func (t *Tally) Skip() {
	t.mu.Lock()
	t.sum.Dropped++
	t.mu.Unlock()
}

// Sum is what was counted; its examples are not modified afterwards.
func (t *Tally) Sum() Sum {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.sum
	out.Examples = out.Examples[:len(out.Examples):len(out.Examples)]
	return out
}
