// Package history records the answers that callers of a cluster received and
// checks that they are consistent: each entity behaves as if it ran one command
// at a time, and its events are exactly the acknowledged commands, each once
// and in order. It knows the rules of the example entities but nothing about
// the program under test, and starts no goroutine.
package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Entity names an entity.
type Entity struct{ Type, ID string }

func (e Entity) String() string { return e.Type + "/" + e.ID }

// Outcome is the outcome of one attempt, as far as the caller knows it.
type Outcome uint8

const (
	// Unknown: the command may have taken effect, or may still take effect.
	Unknown Outcome = iota
	// OK: the command took effect, or the query was answered.
	OK
	// Rejected: the entity's handler rejected the command in its current state.
	// The command has no effect.
	Rejected
	// Failed: the command has no effect, and the attempt reveals nothing about
	// the state.
	Failed
)

func (o Outcome) String() string {
	return [...]string{"unknown", "ok", "rejected", "failed"}[o]
}

// Attempt is one call by one caller: a query or one delivery of a command.
// Other attempts may carry the same command ID.
type Attempt struct {
	Entity    Entity
	Name      string // name of the command or query
	Query     bool
	CommandID string
	Number    int64 // argument of the command: the amount, or n
	// Start and End are relative to the start of the history. End is the time at
	// which the caller learned the outcome.
	Start, End time.Duration
	Outcome    Outcome
	Code       string // code of a rejection or of a failure
	Reply      string
	Sequence   uint64
	EventCount int
	Duplicate  bool
}

func (a Attempt) String() string {
	return fmt.Sprintf("[%9.3f %9.3f] %s %s(%d) id %q: %s %s %s sequence %d events %d duplicate %t", a.Start.Seconds()*1e3, a.End.Seconds()*1e3,
		a.Entity, a.Name, a.Number, a.CommandID, a.Outcome, a.Code, a.Reply, a.Sequence, a.EventCount, a.Duplicate)
}

// History holds the answers that all callers received. It is safe for
// concurrent use.
type History struct {
	began time.Time

	mu       sync.Mutex
	attempts map[Entity][]Attempt
	order    map[Entity]map[string]uint64 // sequence by command ID, for entities whose events were read
	counts   [Failed + 1]int
	resent   int
}

// New returns an empty history that starts now.
func New() *History {
	return &History{began: time.Now(), attempts: map[Entity][]Attempt{}, order: map[Entity]map[string]uint64{}}
}

// Now returns the time since the history started.
func (h *History) Now() time.Duration { return time.Since(h.began) }

// Add records a completed attempt.
func (h *History) Add(a Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts[a.Entity] = append(h.attempts[a.Entity], a)
	h.counts[a.Outcome]++
	if a.Duplicate {
		h.resent++
	}
}

// Count returns the number of attempts with an outcome.
func (h *History) Count(o Outcome) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[o]
}

// Duplicates returns the number of attempts that were answered with a stored
// reply.
func (h *History) Duplicates() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resent
}

// Entities returns every entity that was called, sorted.
func (h *History) Entities() []Entity {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Keys(h.attempts), func(a, b Entity) int { return strings.Compare(a.String(), b.String()) })
}

// Attempts returns the attempts on an entity, in the order in which they
// completed.
func (h *History) Attempts(e Entity) []Attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.attempts[e])
}

// settle stores the sequence at which each command of an entity was found.
func (h *History) settle(e Entity, at map[string]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.order[e] = at
}

func (h *History) settled(e Entity) map[string]uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.order[e]
}
