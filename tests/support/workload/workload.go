// Package workload puts a cluster under a load that shows lost, repeated and
// stale work: many callers, few entities, commands sent again long after their
// first reply, calls given up half-way. It records everything it is told and
// judges nothing. Load.Stop and Load.Abandon join the goroutines that Start
// starts.
package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/history"
)

// Options of a load.
type Options struct {
	Client  *client.Client
	History *history.History
	Seed    uint64
	Callers int // that send one command after another; 16 when 0
	Streams int // that keep many commands in flight; 4 when 0
	// Entities of each type at a time; 8 when 0. Most calls go to few of them.
	Entities int
	// Outstanding commands a stream; 16 when 0.
	Outstanding int
	// Patience is how long a call is tried that is not given up on purpose;
	// 30 s when 0.
	Patience time.Duration
	// Pause lies before each call of a caller, and before each command of a
	// stream, at random between half and one and a half of it; none when 0.
	Pause time.Duration
	// Types are the entity types; Types of this package when nil.
	Types []string
	// Prefix begins the command ids and the entities' ids of this load, where a
	// history has several.
	Prefix string
	// Refused are codes of definite failures that the test expects.
	Refused []connect.Code
}

// Types are the entity types that a load uses unless it is told others: those
// of the example modules.
var Types = []string{"account", "chain", "counter"}

// Shares of calls, in percent.
const (
	resendShare  = 20 // commands that were acknowledged before are sent again
	queryShare   = 20
	giveUpShare  = 10 // calls with a short deadline
	persistShare = 70 // commands with an unknown outcome that are sent until it is known
)

// Load is a load that runs.
type Load struct {
	opts       Options
	generation atomic.Int64    // of entities
	serial     atomic.Int64    // of command ids
	pause      atomic.Int64    // as Options.Pause, in ns
	cutShort   atomic.Int64    // calls that failed and were given up on purpose
	ctx        context.Context // ends when no more is sent
	stop       context.CancelFunc
	calls      context.Context // ends when what was sent is given up
	giveUp     context.CancelFunc
	workers    sync.WaitGroup

	mu    sync.Mutex
	fault error // the first answer that should never be given
	past  []history.Attempt
	rng   *rand.Rand // of past
}

// Start starts the load. It runs until Stop.
func Start(opts Options) *Load {
	setDefault(&opts.Callers, 16)
	setDefault(&opts.Streams, 4)
	setDefault(&opts.Entities, 8)
	setDefault(&opts.Outstanding, 16)
	if opts.Types == nil {
		opts.Types = Types
	}
	if opts.Patience == 0 {
		opts.Patience = 30 * time.Second
	}
	l := &Load{opts: opts, rng: rand.New(rand.NewPCG(opts.Seed, 0))}
	l.SetPause(opts.Pause)
	l.calls, l.giveUp = context.WithCancel(context.Background())
	l.ctx, l.stop = context.WithCancel(l.calls)
	for i := range opts.Callers {
		rng := rand.New(rand.NewPCG(opts.Seed, uint64(1+i)))
		l.workers.Go(func() { l.call(rng) })
	}
	for i := range opts.Streams {
		rng := rand.New(rand.NewPCG(opts.Seed, uint64(1000+i)))
		l.workers.Go(func() { l.stream(rng) })
	}
	return l
}

func setDefault(value *int, to int) {
	if *value == 0 {
		*value = to
	}
}

// NextEntities goes on with other entities, so that the history of each stays
// short. Commands to the former ones are still sent again.
func (l *Load) NextEntities() { l.generation.Add(1) }

// SetPause changes Options.Pause, from each caller's next call on.
func (l *Load) SetPause(pause time.Duration) { l.pause.Store(int64(pause)) }

// Failed is how many calls failed that were tried for as long as Patience: not
// those that were given up on purpose before another node could answer.
func (l *Load) Failed() int {
	return l.opts.History.Count(history.Failed) - int(l.cutShort.Load())
}

// Acknowledged is how many commands and queries have been answered.
func (l *Load) Acknowledged() int { return l.opts.History.Count(history.OK) }

// Stop ends the load and returns when every call has ended. The error is the
// first answer that no node should give, whatever happens to it.
func (l *Load) Stop() error {
	l.stop()
	l.workers.Wait()
	l.giveUp()
	return l.Fault()
}

// Abandon ends the load when nobody is left to answer it. The outcome of what
// was sent is unknown.
func (l *Load) Abandon() {
	l.giveUp()
	l.workers.Wait()
}

// Fault is the error that Stop would return now.
func (l *Load) Fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

// maxPast bounds the commands that are kept to be sent again.
const maxPast = 4096

// remember keeps an acknowledged command, one of all so far by chance.
func (l *Load) remember(a history.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.past) < maxPast {
		l.past = append(l.past, a)
		return
	}
	l.past[l.rng.IntN(maxPast)] = a
}

// next decides what to send: something new, or something again.
func (l *Load) next(rng *rand.Rand) history.Attempt {
	if rng.IntN(100) < resendShare {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.past) > 0 {
			again := l.past[rng.IntN(len(l.past))]
			return history.Attempt{Entity: again.Entity, Name: again.Name, CommandID: again.CommandID, Number: again.Number}
		}
	}
	return l.fresh(rng)
}

// fresh makes a new command or query. Entities are drawn so that half the
// calls go to the first of each type.
func (l *Load) fresh(rng *rand.Rand) history.Attempt {
	entityType := l.opts.Types[rng.IntN(len(l.opts.Types))]
	place := 0
	for place < l.opts.Entities-1 && rng.IntN(2) == 0 {
		place++
	}
	a := history.Attempt{Entity: history.Entity{Type: entityType, ID: fmt.Sprintf("%sg%d-%d", l.opts.Prefix, l.generation.Load(), place)}}
	if rng.IntN(100) < queryShare {
		a.Query, a.Name = true, Query(entityType)
		return a
	}
	a.CommandID = fmt.Sprintf("%s%s-%d", l.opts.Prefix, entityType, l.serial.Add(1))
	a.Number = 1 + rng.Int64N(1_000_000)
	switch entityType {
	case "account":
		switch n := rng.IntN(20); {
		case n == 0:
			a.Name, a.Number = "open", 0
		case n < 11:
			a.Name = "deposit"
		default:
			a.Name = "withdraw"
		}
	case "chain":
		a.Name = "link"
	case "counter":
		a.Name = "add"
	}
	return a
}

// Query is the query of an example entity type that tells its state.
func Query(entityType string) string {
	return map[string]string{"account": "balance", "chain": "head", "counter": "total"}[entityType]
}

// command makes the client's form of a command.
func command(a history.Attempt) client.Command {
	payload := fmt.Appendf(nil, `{"amount":%d}`, a.Number)
	switch a.Name {
	case "open":
		payload = nil
	case "link":
		payload = fmt.Appendf(nil, `{"n":%d}`, a.Number)
	}
	return client.Command{EntityType: a.Entity.Type, EntityID: a.Entity.ID, Name: a.Name, Data: payload, ID: a.CommandID}
}

// record writes down how an attempt ended and returns its outcome.
func (l *Load) record(a history.Attempt, reply client.Reply, err error) history.Outcome {
	a.End = l.opts.History.Now()
	a.Outcome, a.Code = l.outcome(err)
	if a.Outcome == history.OK {
		a.Reply, a.Sequence, a.EventCount, a.Duplicate = string(reply.Data), reply.Sequence, reply.EventCount, reply.Duplicate
		if !a.Query {
			l.remember(a)
		}
	}
	l.opts.History.Add(a)
	return a.Outcome
}

// outcome reads what an error says of a command.
func (l *Load) outcome(err error) (history.Outcome, string) {
	var rejected *client.RejectedError
	switch code := client.CodeOf(err); {
	case err == nil:
		return history.OK, ""
	case errors.As(err, &rejected):
		return history.Rejected, rejected.Code
	case client.OutcomeUnknown(err):
		return history.Unknown, err.Error()
	case code == connect.CodeUnavailable:
		return history.Failed, err.Error()
	default:
		for _, expected := range l.opts.Refused {
			if code == expected {
				return history.Failed, err.Error()
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault == nil {
		l.fault = err
	}
	return history.Failed, err.Error()
}
