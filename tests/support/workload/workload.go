// Package workload puts a cluster under a load that reveals lost, repeated and
// stale operations: many callers, few entities, commands that are resent long
// after their first reply, and calls that are cancelled. It records all answers
// but does not check them. Load.Stop and Load.Abandon wait for the goroutines
// that Start starts.
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

// Options configure a load.
type Options struct {
	Client  *client.Client
	History *history.History
	Seed    uint64
	Callers int // number of callers that send one command at a time; 0 means 16
	Streams int // number of streams that keep many commands in flight; 0 means 4
	// Entities is the number of entities of each type in use at a time; 0 means 8.
	// Most calls go to a few of them.
	Entities int
	// Outstanding is the number of commands in flight per stream; 0 means 16.
	Outstanding int
	// Patience is how long a call is retried unless it is cancelled on purpose; 0
	// means 30 s.
	Patience time.Duration
	// Pause is the mean pause before each call of a caller and each command of a
	// stream. A pause is drawn between half and one and a half times the mean. 0
	// means no pause.
	Pause time.Duration
	// Types are the entity types; nil means the variable Types.
	Types []string
	// Prefix is prepended to command IDs and entity IDs, so that one history
	// can hold several loads.
	Prefix string
	// Refused are the codes of definite failures that the test expects.
	Refused []connect.Code
}

// Types are the default entity types: those of the example modules.
var Types = []string{"account", "chain", "counter"}

// Shares of calls or commands, in percent.
const (
	resendShare  = 20 // acknowledged commands that are resent
	queryShare   = 20
	giveUpShare  = 10 // calls with a short deadline
	persistShare = 70 // commands with an unknown outcome that are resent until the outcome is known
)

// Load is a running load.
type Load struct {
	opts       Options
	generation atomic.Int64    // generation of the entities in use
	serial     atomic.Int64    // serial number of the latest command ID
	pause      atomic.Int64    // Options.Pause in ns
	cutShort   atomic.Int64    // number of calls that failed after they were cancelled on purpose
	ctx        context.Context // ends when the load sends nothing more
	stop       context.CancelFunc
	calls      context.Context // ends when calls in flight are abandoned
	giveUp     context.CancelFunc
	workers    sync.WaitGroup

	mu    sync.Mutex
	fault error // describes the first answer that no node may give
	past  []history.Attempt
	rng   *rand.Rand // for choosing from past
}

// Start starts the load, which runs until Stop or Abandon.
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

// NextEntities continues with different entities, so that the history of each
// entity stays short. Commands to the previous entities are still resent.
func (l *Load) NextEntities() { l.generation.Add(1) }

// SetPause changes Options.Pause, from each caller's next call on.
func (l *Load) SetPause(pause time.Duration) { l.pause.Store(int64(pause)) }

// Failed returns the number of calls that failed although they were retried for
// Patience. It excludes calls that were cancelled on purpose before another
// node could answer.
func (l *Load) Failed() int {
	return l.opts.History.Count(history.Failed) - int(l.cutShort.Load())
}

// Acknowledged returns the number of commands and queries that succeeded.
func (l *Load) Acknowledged() int { return l.opts.History.Count(history.OK) }

// Stop ends the load and returns when every call has ended. It returns an error
// for the first answer that no node may give under any fault.
func (l *Load) Stop() error {
	l.stop()
	l.workers.Wait()
	l.giveUp()
	return l.Fault()
}

// Abandon ends the load if no node is left to answer it. The outcome of calls
// in flight is unknown.
func (l *Load) Abandon() {
	l.giveUp()
	l.workers.Wait()
}

// Fault returns the error that Stop would return now.
func (l *Load) Fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

// maxPast bounds the number of commands that are kept for resending.
const maxPast = 4096

// remember keeps an acknowledged command for resending. If maxPast commands are
// kept already, it replaces a random command.
func (l *Load) remember(a history.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.past) < maxPast {
		l.past = append(l.past, a)
		return
	}
	l.past[l.rng.IntN(maxPast)] = a
}

// next chooses between a new call and a resent command.
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

// fresh makes a new command or query. It draws entities so that half the calls
// go to the first entity of each type.
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

// Query returns the name of the query that reads the state of an example entity
// type.
func Query(entityType string) string {
	return map[string]string{"account": "balance", "chain": "head", "counter": "total"}[entityType]
}

// command converts an attempt to the client's command.
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

// record adds a completed attempt to the history and returns its outcome.
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

// outcome derives the outcome and the code of a command from an error.
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
