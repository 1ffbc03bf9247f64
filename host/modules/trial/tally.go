package trial

import (
	"strings"
	"sync"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// maxExamples bounds the differing commands that are listed.
	maxExamples = 20
	// maxText bounds the text of a fault, in bytes.
	maxText = 512
)

// Example is a command on which the two modules decided differently.
type Example struct {
	Entity   sharding.EntityID
	Sequence journal.Sequence // sequence of the entity's last event before the command
	Command  string
	In       Difference
	Fault    string // beginning of the shadow module's fault; empty for none
}

// Tally sums comparisons. It is safe for concurrent use.
type Tally struct {
	mu  sync.Mutex
	sum Sum
}

// Sum is the result of the comparisons of a type.
type Sum struct {
	Compared uint64
	By       [Kinds]uint64 // differing commands by aspect, in the order of the bits of Difference
	Differ   uint64        // commands that differ in any aspect
	Dropped  uint64        // commands dropped because the queue was full
	Passed   uint64        // commands skipped because the state was not available in time or would cost too much
	Fuel     uint64        // fuel of the serving module for the compared commands
	Other    uint64        // fuel of the shadow module
	Examples []Example     // first differing commands, at most maxExamples
	Note     string        // why nothing is compared at the moment; empty if comparing works
}

// Add counts a compared command. e.In is the set of aspects in which it
// differs.
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

// Drop counts a command that the full queue dropped.
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

// Note sets why nothing is compared. An empty text clears it.
func (t *Tally) Note(text string) {
	t.mu.Lock()
	t.sum.Note = short(text)
	t.mu.Unlock()
}

func short(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// Add adds the sum of another node.
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

// Sum returns the current sum. Its examples are not modified afterwards.
func (t *Tally) Sum() Sum {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.sum
	out.Examples = out.Examples[:len(out.Examples):len(out.Examples)]
	return out
}
