// Package history records what the callers of a cluster were told, and checks
// that it can be true: that each entity behaved as if it ran one command at a
// time, and that its events are exactly the commands that were acknowledged,
// once each and in order. It knows the rules of the example entities and
// nothing of the program under test, and starts no goroutine.
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

// Outcome is what a caller learned of one attempt.
type Outcome uint8

const (
	// Unknown: the command may have taken effect, or may still.
	Unknown Outcome = iota
	// OK: the command took effect, or the query was answered.
	OK
	// Rejected: the entity's handler refused, on the state it saw. No effect.
	Rejected
	// Failed: the command has no effect, and nothing is learned of the state.
	Failed
)

func (o Outcome) String() string {
	return [...]string{"unknown", "ok", "rejected", "failed"}[o]
}

// Attempt is one call by one caller: a query, or one sending of a command,
// which others with the same command id may come before and after.
type Attempt struct {
	Entity    Entity
	Name      string // of the command or query
	Query     bool
	CommandID string
	Number    int64 // what a command carries: the amount, or n
	// Start and End are from the start of the history; End is when the outcome
	// was learned.
	Start, End time.Duration
	Outcome    Outcome
	Code       string // of a rejection, or of a failure
	Reply      string
	Sequence   uint64
	EventCount int
	Duplicate  bool
}

func (a Attempt) String() string {
	return fmt.Sprintf("[%9.3f %9.3f] %s %s(%d) id %q: %s %s %s sequence %d events %d duplicate %t", a.Start.Seconds()*1e3, a.End.Seconds()*1e3,
		a.Entity, a.Name, a.Number, a.CommandID, a.Outcome, a.Code, a.Reply, a.Sequence, a.EventCount, a.Duplicate)
}

// History is what all callers were told. It is safe for concurrent use.
type History struct {
	began time.Time

	mu       sync.Mutex
	attempts map[Entity][]Attempt
	order    map[Entity]map[string]uint64 // of commands, where the events have been read
	counts   [Failed + 1]int
	resent   int
}

// New returns an empty history that begins now.
func New() *History {
	return &History{began: time.Now(), attempts: map[Entity][]Attempt{}, order: map[Entity]map[string]uint64{}}
}

// Now is the time since the history began.
func (h *History) Now() time.Duration { return time.Since(h.began) }

// Add records an attempt that has ended.
func (h *History) Add(a Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts[a.Entity] = append(h.attempts[a.Entity], a)
	h.counts[a.Outcome]++
	if a.Duplicate {
		h.resent++
	}
}

// Count returns how many attempts had the outcome.
func (h *History) Count(o Outcome) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[o]
}

// Duplicates returns how many attempts were answered with a stored reply.
func (h *History) Duplicates() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resent
}

// Entities returns every entity that was called, in order.
func (h *History) Entities() []Entity {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Keys(h.attempts), func(a, b Entity) int { return strings.Compare(a.String(), b.String()) })
}

// Attempts returns the attempts on an entity, in the order in which they
// ended.
func (h *History) Attempts(e Entity) []Attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.attempts[e])
}

// settle remembers at which sequence each command of an entity was found.
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
