// Package bench measures nodes as their clients see them: closed loops of unary
// calls, a stream that is kept full, and the time to load a long history. It
// also measures the resource usage of the processes. It reaches nodes only
// through the API. Each workload owns its goroutines and joins them before it
// returns; a run stops the processes that it started.
package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hostd/hostd/api/client"
)

// Load describes the calls of a workload.
type Load struct {
	EntityType  string
	Command     string
	Query       string // for unary calls: a linearizable query to send instead of the command
	Payload     []byte
	Keys        int           // number of entities that commands go to, round robin
	Scatter     bool          // spread over the entities instead of in order
	Fresh       bool          // for streams: each command goes to a new entity
	KeyPrefix   string        // distinguishes the entities of a run from the entities of other runs
	Concurrency int           // callers, or outstanding commands of the stream
	WarmUp      time.Duration // time before the measurement
	Duration    time.Duration // length of the measurement
}

// Result is the result of a workload. Latencies are of successful calls.
type Result struct {
	Workload    string
	Concurrency int
	Keys        int
	Elapsed     time.Duration // time from the first counted call to the last answer
	Latency     Histogram
	Errors      uint64
	FirstError  error

	// All counts the answered calls, including calls of the warm-up.
	All uint64
	// Again counts the commands that were sent again because they exceeded
	// their deadline.
	Again uint64

	calls uint64    // counted calls, including failed ones
	last  time.Time // when the last counted call ended
}

// PerSecond returns the rate of successful calls.
func (r *Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Latency.Count()) / r.Elapsed.Seconds()
}

// keys returns the ids of the entities.
func (l Load) keys() []string {
	names := make([]string, max(l.Keys, 1))
	for i := range names {
		names[i] = l.key(i)
	}
	return names
}

// key returns the id of one entity.
func (l Load) key(i int) string { return l.KeyPrefix + strconv.Itoa(i) }

// phase decides which calls are measured: the calls that begin after the
// warm-up. No call begins after the end, unless none has counted so far, so
// that a slow machine gets a result too.
type phase struct{ measure, end time.Time }

func (p phase) counts(began time.Time) bool { return !began.Before(p.measure) }

func (l Load) phase() phase {
	now := time.Now()
	return phase{now.Add(l.WarmUp), now.Add(l.WarmUp + l.Duration)}
}

// Unary keeps Concurrency callers busy with unary calls.
func Unary(ctx context.Context, name string, c *client.Client, l Load) (*Result, error) {
	keys := l.keys()
	parts := make([]Result, l.Concurrency)
	p := l.phase()
	var callers sync.WaitGroup
	for i := range parts {
		callers.Go(func() {
			part := &parts[i]
			for n := i; ; n += l.Concurrency {
				began := time.Now()
				if began.After(p.end) && part.calls > 0 || ctx.Err() != nil {
					return
				}
				key := n % len(keys)
				if l.Scatter {
					key = int(uint64(n) * 0x9e3779b97f4a7c15 >> 16 % uint64(len(keys)))
				}
				part.record(p, began, l.call(ctx, c, keys[key]))
			}
		})
	}
	callers.Wait()
	total := Result{Workload: name, Concurrency: l.Concurrency, Keys: l.Keys}
	for i := range parts {
		total.Elapsed = max(total.Elapsed, parts[i].last.Sub(p.measure))
		total.Latency.Merge(&parts[i].Latency)
		total.Errors += parts[i].Errors
		total.All += parts[i].All
		if total.FirstError == nil {
			total.FirstError = parts[i].FirstError
		}
	}
	return total.orError(ctx)
}

// call makes one call to an entity.
func (l Load) call(ctx context.Context, c *client.Client, key string) (err error) {
	if l.Query != "" {
		_, err = c.Query(ctx, client.Query{EntityType: l.EntityType, EntityID: key, Name: l.Query})
	} else {
		_, err = c.Send(ctx, client.Command{EntityType: l.EntityType, EntityID: key, Name: l.Command, Data: l.Payload})
	}
	return err
}

// record records the outcome of a call. If a call is not measured, record
// keeps only the text of its failure.
func (r *Result) record(p phase, began time.Time, err error) {
	if err != nil && r.FirstError == nil {
		r.FirstError = err
	}
	if err == nil {
		r.All++
	}
	if !p.counts(began) {
		return
	}
	r.calls++
	r.last = time.Now()
	if err != nil {
		r.Errors++
		return
	}
	r.Latency.Record(r.last.Sub(began))
}

// orError returns an error if no call succeeded.
func (r *Result) orError(ctx context.Context) (*Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.Latency.Count() == 0 {
		err := r.FirstError
		if err == nil {
			err = errors.New("no call completed")
		}
		return nil, fmt.Errorf("workload %s: %w", r.Workload, err)
	}
	return r, nil
}

// Stream keeps Concurrency commands outstanding on one stream.
func Stream(ctx context.Context, name string, c *client.Client, l Load) (*Result, error) {
	keys := l.keys()
	s := c.Stream(client.StreamOptions{Outstanding: l.Concurrency})
	r := &Result{Workload: name, Concurrency: l.Concurrency, Keys: l.Keys}
	p := l.phase()
	counted := false // a counted command has been sent
	for n := 0; ; n++ {
		began := time.Now()
		if began.After(p.end) && counted || ctx.Err() != nil {
			break
		}
		counted = counted || p.counts(began)
		key := ""
		if l.Fresh {
			key = l.key(n)
		} else {
			key = keys[n%len(keys)]
		}
		cmd := client.Command{EntityType: l.EntityType, EntityID: key, Name: l.Command, Data: l.Payload}
		// Answers arrive on the stream's only goroutine, so r needs no lock
		// until Close has joined it.
		if err := s.Send(ctx, cmd, func(_ client.Reply, err error) { r.record(p, began, err) }); err != nil {
			return nil, fmt.Errorf("workload %s: %w", name, errors.Join(err, closeStream(s)))
		}
	}
	if err := closeStream(s); err != nil {
		return nil, fmt.Errorf("workload %s: %w", name, err)
	}
	r.Elapsed = r.last.Sub(p.measure)
	return r.orError(ctx)
}

// drainPatience limits the wait for outstanding commands at the end.
const drainPatience = 30 * time.Second

func closeStream(s *client.Stream) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainPatience)
	defer cancel()
	return s.Close(ctx)
}

// Fill gives one entity a history of that many events, with one command each.
func Fill(ctx context.Context, c *client.Client, l Load, key string, events int) error {
	s := c.Stream(client.StreamOptions{Outstanding: 256})
	var failed error // error of the first command that failed; read after Close
	var sendErr error
	for range events {
		cmd := client.Command{EntityType: l.EntityType, EntityID: key, Name: l.Command, Data: l.Payload}
		if sendErr = s.Send(ctx, cmd, func(_ client.Reply, err error) {
			if err != nil && failed == nil {
				failed = err
			}
		}); sendErr != nil {
			break
		}
	}
	if err := errors.Join(sendErr, closeStream(s), failed); err != nil {
		return fmt.Errorf("fill an entity with %d events: %w", events, err)
	}
	return nil
}

// Activate queries each entity once, on a node that has none of them in memory.
func Activate(ctx context.Context, name string, c *client.Client, entityType, query string, keys []string, wantSequence uint64) (*Result, error) {
	r := &Result{Workload: name, Concurrency: 1, Keys: len(keys)}
	for _, key := range keys {
		began := time.Now()
		answer, err := c.Query(ctx, client.Query{EntityType: entityType, EntityID: key, Name: query})
		if err != nil {
			return nil, fmt.Errorf("workload %s: %w", name, err)
		}
		if answer.Sequence != wantSequence {
			return nil, fmt.Errorf("workload %s: the entity was loaded at sequence %d instead of %d", name, answer.Sequence, wantSequence)
		}
		took := time.Since(began)
		r.Latency.Record(took)
		r.Elapsed += took
		r.All++
	}
	return r.orError(ctx)
}
