// Package rpctest implements, for tests, the interfaces on which the API
// servers depend. Its entities count, keep their history and deduplicate
// commands by ID. Everything is in memory and runs in one goroutine, as on one
// executor. It does not simulate a node, because nothing is durable and there
// is only one executor.
//
// World owns its goroutine; Close waits for it to end.
package rpctest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/entityapi/subscription"
	"github.com/hostd/hostd/host/moduleapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Entity types of the world, and the digest of the module that serves both.
const (
	Counter = "counter" // encoding json
	Blob    = "blob"    // encoding bytes
)

// ModuleDigest is the digest of the module that serves the world's types.
var ModuleDigest = journal.Digest{1, 2, 3}

// World implements every interface that the API servers depend on.
//
// Commands: add {"amount"} returns {"total"}; echo returns its payload and
// writes nothing; burst emits the number of events in its payload; reject and
// fault fail. A command whose name begins with a key of Fail fails with that
// error. Queries: total, echo.
type World struct {
	// Fail maps command names to the errors with which the commands fail. Set it
	// before the first request.
	Fail map[string]error
	// CommandFuel is the fuel that each command consumes. Set it before the
	// first request.
	CommandFuel uint64
	// Nodes is the cluster that the world reports, and Kept stores its roles.
	Nodes *Cluster
	Kept  *Kept

	mu        sync.Mutex
	queue     []*request.Request
	arrived   *sync.Cond
	paused    bool
	closed    bool
	most      int // longest queue so far
	batches   int // number of calls of Submit
	entities  map[sharding.EntityID]*state
	watchers  map[sharding.EntityID]map[chan struct{}]struct{}
	order     [Shards + 1][]*journal.Record // records by shard, in log order
	unapplied uint64                        // number of entries at the end of each shard's log that nodes have not applied
	types     map[string]modules.Type
	owners    map[string]string // owners by entity type
	typesErr  error
	looks     int // number of lookups of unknown types
	modules   []stored
	done      chan struct{}

	shardWatchers map[chan struct{}]struct{}
}

type state struct {
	total    int64
	sequence journal.Sequence
	records  []journal.Record
	seen     map[journal.CommandID]outcome
}

type outcome struct {
	hash   uint64
	result request.Result
}

type stored struct {
	modules.Module
	wasm, signature []byte
}

// New starts a world with the types Counter and Blob.
func New() *World {
	w := &World{
		entities: make(map[sharding.EntityID]*state),
		watchers: make(map[sharding.EntityID]map[chan struct{}]struct{}),
		owners:   map[string]string{},
		types: map[string]modules.Type{
			Counter: {Encoding: request.JSON, Module: ModuleDigest},
			Blob:    {Encoding: request.Bytes, Module: ModuleDigest},
		},
		done:  make(chan struct{}),
		Nodes: NewCluster(),
		Kept:  NewKept(),

		shardWatchers: make(map[chan struct{}]struct{}),
	}
	w.arrived = sync.NewCond(&w.mu)
	go w.lane()
	return w
}

// Services returns the options of the services, all of them implemented by the
// world.
func (w *World) Services() services.Options {
	return services.Options{
		Module: moduleapi.Options{Types: w, Modules: roleModules{w}},
		Entity: entityapi.Options{
			Runtime: w, Histories: w, Entities: roleEntities{w}, Readers: subscription.Readers{EventOrder: eventOrder{w, func(sharding.ShardID) bool { return true }}},
		},
		Cluster: clusterapi.Options{View: w.Nodes, Admin: w.Nodes, Upgrades: w.Nodes, Bootstrapper: w.Nodes, Policies: w.Nodes, Settings: w.Nodes, Roles: w.Kept},
	}
}

// Close ends the world. Requests that have not completed fail with an unknown
// outcome.
func (w *World) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.arrived.Broadcast()
	<-w.done
}

// Pause stops the executor from taking requests until Resume.
func (w *World) Pause() { w.setPaused(true) }

// Resume undoes Pause.
func (w *World) Resume() { w.setPaused(false) }

func (w *World) setPaused(p bool) {
	w.mu.Lock()
	w.paused = p
	w.mu.Unlock()
	w.arrived.Broadcast()
}

// SetTypesError makes Lookup fail with err. Nil lets it succeed again.
func (w *World) SetTypesError(err error) {
	w.mu.Lock()
	w.typesErr = err
	w.mu.Unlock()
}

// Queued returns the current and the greatest length of the queue, and the
// number of calls of Submit.
func (w *World) Queued() (now, most, batches int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue), w.most, w.batches
}

// Submit implements entityapi.Runtime.
func (w *World) Submit(reqs []*request.Request) {
	w.mu.Lock()
	w.queue = append(w.queue, reqs...)
	w.most = max(w.most, len(w.queue))
	w.batches++
	w.mu.Unlock()
	w.arrived.Signal()
}

func (w *World) lane() {
	defer close(w.done)
	var taken []*request.Request
	for {
		w.mu.Lock()
		for !w.closed && (w.paused || len(w.queue) == 0) {
			w.arrived.Wait()
		}
		taken, w.queue = w.queue, taken[:0]
		closed, now := w.closed, time.Now()
		for _, r := range taken {
			if closed {
				r.Result = request.Result{Err: request.ErrOutcomeUnknown}
				continue
			}
			r.Result = w.decide(r, now)
		}
		w.mu.Unlock()
		for i, r := range taken {
			taken[i] = nil
			r.Done.Complete(r)
		}
		if closed {
			return
		}
	}
}

// decide runs one request. The caller holds the mutex.
func (w *World) decide(r *request.Request, now time.Time) request.Result {
	if !r.Deadline.IsZero() && now.After(r.Deadline) {
		return request.Result{Err: request.ErrDeadline}
	}
	if r.Name == "echo" {
		return request.Result{Payload: slices.Clone(r.Payload)}
	}
	if r.Name == "who" { // returns the caller, in the form of the header between nodes
		return request.Result{Payload: []byte(cmp.Or(principal.HeaderOf(principal.Said{Caller: r.Principal, Roles: r.Roles}), "null"))}
	}
	s := w.entities[r.Entity]
	if s == nil {
		s = &state{seen: make(map[journal.CommandID]outcome)}
	}
	if r.Kind != request.Command {
		if r.Name != "total" {
			return request.Result{Err: fmt.Errorf("%w: %s", request.ErrUnknownQuery, r.Name)}
		}
		return request.Result{Payload: totalOf(s), Sequence: s.sequence}
	}
	hash, _ := journal.HashCommand(nil, r.Name, r.Payload)
	if before, ok := s.seen[r.ID]; ok {
		if before.hash != hash {
			return request.Result{Err: request.ErrCommandIDReused}
		}
		before.result.Duplicate = true
		return before.result
	}
	if r.ExpectedSequence != request.NoExpectation && journal.Sequence(r.ExpectedSequence) != s.sequence {
		return request.Result{Err: &request.SequenceMismatchError{Expected: journal.Sequence(r.ExpectedSequence), Actual: s.sequence}}
	}
	events, reply, err := w.handle(s, r)
	if err != nil {
		return request.Result{Err: err}
	}
	rec := journal.Record{
		Entity: r.Entity, RecordedAt: now.UnixNano(), Expected: s.sequence,
		Module: ModuleDigest, CommandID: r.ID, CommandHash: hash, Reply: reply, Events: events,
	}
	s.records = append(s.records, rec)
	w.note(&rec)
	s.sequence = rec.Last()
	result := request.Result{Payload: reply, Sequence: s.sequence, EventCount: len(events), Fuel: w.CommandFuel}
	s.seen[r.ID] = outcome{hash, result}
	w.entities[r.Entity] = s
	for c := range w.watchers[r.Entity] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	return result
}

func (w *World) handle(s *state, r *request.Request) (events []journal.Event, reply []byte, err error) {
	if err := w.Fail[r.Name]; err != nil {
		return nil, nil, err
	}
	switch {
	case r.Name == "add" && r.Entity.Type == Counter:
		var in struct {
			Amount int64 `json:"amount"`
		}
		if err := json.Unmarshal(r.Payload, &in); err != nil {
			return nil, nil, &request.RejectedError{Code: "bad_payload", Message: err.Error()}
		}
		s.total += in.Amount
		return []journal.Event{{Type: "added", Payload: slices.Clone(r.Payload), Tags: []string{"sum"}}}, totalOf(s), nil
	case r.Name == "burst":
		for i := range 5 {
			events = append(events, journal.Event{Type: "burst", Payload: fmt.Append(nil, i)})
		}
		return events, nil, nil
	case r.Name == "set" && r.Entity.Type == Blob:
		return []journal.Event{{Type: "set", Payload: slices.Clone(r.Payload)}}, slices.Clone(r.Payload), nil
	case r.Name == "reject":
		return nil, nil, &request.RejectedError{Code: "insufficient_funds", Message: "the balance is too low"}
	case r.Name == "fault":
		return nil, nil, &request.GuestFaultError{Message: "unreachable"}
	}
	return nil, nil, fmt.Errorf("%w: %s", request.ErrUnknownCommand, r.Name)
}

func totalOf(s *state) []byte { return fmt.Appendf(nil, `{"total":%d}`, s.total) }

// Total returns the total of a counter; 0 if it does not exist.
func (w *World) Total(id string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.entities[sharding.EntityID{Type: Counter, ID: id}]; s != nil {
		return s.total
	}
	return 0
}

// Commands returns the payloads of an entity's commands in the order in which
// they took effect.
func (w *World) Commands(id sharding.EntityID) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	if s := w.entities[id]; s != nil {
		for i := range s.records {
			for _, e := range s.records[i].Events {
				out = append(out, string(e.Payload))
			}
		}
	}
	return out
}

// ErrInternal is an error without a code of its own.
var ErrInternal = errors.New("/var/lib/hostd/secret: input/output error")
