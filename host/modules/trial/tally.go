package trial

import (
	"strings"
	"sync"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// maxExamples is how many commands are named that differ.
	maxExamples = 20
	// maxText bounds what is told of a fault, in bytes.
	maxText = 512
)

// Example is a command on which the two modules decided otherwise.
type Example struct {
	Entity   sharding.EntityID
	Sequence journal.Sequence // of the entity's last event before it
	Command  string
	In       Difference
	Fault    string // of the other module, its beginning; empty for none
}

// Tally sums what was compared. It is safe for concurrent use.
type Tally struct {
	mu  sync.Mutex
	sum Sum
}

// Sum is what was compared of a type.
type Sum struct {
	Compared uint64
	By       [Kinds]uint64 // how many differ, by the bits of Difference
	Differ   uint64        // in anything
	Dropped  uint64        // there was no room for
	Passed   uint64        // passed over: there was no state in time, or it would cost too much
	Fuel     uint64        // of the module that serves, for what was compared
	Other    uint64        // of the other one
	Examples []Example     // the first ones, at most maxExamples
	Note     string        // why nothing is compared just now; empty where it is
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
		e.Fault = short(e.Fault)
		t.sum.Examples = append(t.sum.Examples, e)
	}
}

// Drop counts a command that there was no room for.
func (t *Tally) Drop() {
	t.mu.Lock()
	t.sum.Dropped++
	t.mu.Unlock()
}

// Pass counts a command that could not be compared.
func (t *Tally) Pass() {
	t.mu.Lock()
	t.sum.Passed++
	t.mu.Unlock()
}

// Note says why nothing is compared; an empty text says that it is again.
func (t *Tally) Note(text string) {
	t.mu.Lock()
	t.sum.Note = short(text)
	t.mu.Unlock()
}

func short(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// Add adds what another node has counted.
func (s *Sum) Add(o *Sum) {
	s.Compared += o.Compared
	s.Differ += o.Differ
	s.Dropped += o.Dropped
	s.Passed += o.Passed
	s.Fuel += o.Fuel
	s.Other += o.Other
	for i, n := range o.By {
		s.By[i] += n
	}
	s.Examples = append(s.Examples, o.Examples[:min(len(o.Examples), maxExamples-len(s.Examples))]...)
	if s.Note == "" {
		s.Note = short(o.Note)
	}
}

// Sum is what was counted; its examples are not modified afterwards.
func (t *Tally) Sum() Sum {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.sum
	out.Examples = out.Examples[:len(out.Examples):len(out.Examples)]
	return out
}
