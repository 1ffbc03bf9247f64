package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
)

// Each sends one command to each of the entities first to end-1, with at
// most Concurrency commands outstanding. payload returns the payload for an
// entity; if it is nil, the load's payload is used. A command that exceeds
// its deadline, which happens on a busy machine, is sent again with the same
// id.
func Each(ctx context.Context, c *client.Client, l Load, first, end int, payload func(i int) []byte) (*Result, error) {
	r := &Result{Concurrency: l.Concurrency, Keys: end - first}
	began := time.Now()
	n := first
	next := func() (cmd client.Command, ok bool) {
		if n == end {
			return cmd, false
		}
		cmd = client.Command{ID: client.NewCommandID(), EntityType: l.EntityType, EntityID: l.key(n), Name: l.Command, Data: l.Payload}
		if payload != nil {
			cmd.Data = payload(n)
		}
		n++
		return cmd, true
	}
	for tries := 0; ; tries++ {
		late, err := r.each(ctx, c, l.Concurrency, next)
		if err == nil && len(late) > 0 && tries == mostTries {
			err = fmt.Errorf("%d commands exceeded their deadline %d times", len(late), tries+1)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %d entities: %w", l.Command, end-first, err)
		}
		if len(late) == 0 {
			break
		}
		r.Again += uint64(len(late))
		next = func() (cmd client.Command, ok bool) {
			if len(late) == 0 {
				return cmd, false
			}
			cmd, late = late[0], late[1:]
			return cmd, true
		}
	}
	r.Elapsed = time.Since(began)
	return r.orError(ctx)
}

// mostTries limits how often Each sends a command.
const mostTries = 10

// each sends the commands that next returns, and returns the commands that exceeded
// their deadline.
func (r *Result) each(ctx context.Context, c *client.Client, outstanding int, next func() (client.Command, bool)) (late []client.Command, err error) {
	s := c.Stream(client.StreamOptions{Outstanding: outstanding})
	var failed error
	for failed == nil {
		cmd, more := next()
		if !more {
			break
		}
		sent := time.Now()
		// Answers arrive on the stream's only goroutine, so the data that they
		// change needs no lock until Close has joined it.
		failed = s.Send(ctx, cmd, func(_ client.Reply, err error) {
			if client.CodeOf(err) == connect.CodeDeadlineExceeded {
				late = append(late, cmd)
				return
			}
			r.record(phase{}, sent, err)
		})
	}
	err = errors.Join(failed, closeStream(s), r.FirstError)
	return late, err
}

// askedAgain is the number of commands between two calls of more while RunPaced
// is behind schedule.
const askedAgain = 100

// RunPaced sends commands at a fixed rate, whether or not earlier ones are
// answered, until its warm-up and duration are over or more returns false.
// Latency is measured from the time at which a command was scheduled. At most
// Concurrency commands are outstanding; the wait for a free place counts as
// latency.
func RunPaced(ctx context.Context, name string, c *client.Client, l Load, perSecond float64, more func() bool) (*Result, error) {
	keys := l.keys()
	s := c.Stream(client.StreamOptions{Outstanding: l.Concurrency})
	r := &Result{Workload: name, Concurrency: l.Concurrency, Keys: l.Keys}
	p, began := l.phase(), time.Now()
	step := time.Duration(float64(time.Second) / perSecond)
	for n, due := 0, began; due.Before(p.end) && ctx.Err() == nil; n, due = n+1, due.Add(step) {
		wait := time.Until(due)
		if more != nil && (wait > time.Millisecond || n%askedAgain == 0) && !more() {
			break
		}
		if wait > time.Millisecond {
			pause(ctx, wait)
		}
		cmd := client.Command{EntityType: l.EntityType, EntityID: keys[rand.IntN(len(keys))], Name: l.Command, Data: l.Payload}
		if err := s.Send(ctx, cmd, func(_ client.Reply, err error) { r.record(p, due, err) }); err != nil {
			return nil, fmt.Errorf("workload %s: %w", name, errors.Join(err, closeStream(s)))
		}
	}
	if err := closeStream(s); err != nil {
		return nil, fmt.Errorf("workload %s: %w", name, err)
	}
	r.Elapsed = r.last.Sub(p.measure)
	return r.orError(ctx)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Wake measures queries on entities that are not in memory and then again on
// the same entities, one after the other, for the load's duration: it makes
// each entity leave memory with the load's command and queries it twice.
// cold is the result of the first queries, and warm is the result of the
// second queries.
func Wake(ctx context.Context, c *client.Client, l Load, query string) (cold, warm *Result, err error) {
	cold, warm = &Result{Concurrency: 1, Keys: l.Keys}, &Result{Concurrency: 1, Keys: l.Keys}
	keys, p := l.keys(), l.phase()
	for n := 0; time.Now().Before(p.end); n++ {
		key := keys[n%len(keys)]
		if _, err := c.Send(ctx, client.Command{EntityType: l.EntityType, EntityID: key, Name: l.Command, Data: l.Payload}); err != nil {
			return nil, nil, err
		}
		for _, r := range []*Result{cold, warm} {
			began := time.Now()
			_, err := c.Query(ctx, client.Query{EntityType: l.EntityType, EntityID: key, Name: query})
			r.record(p, began, err)
			if err == nil && p.counts(began) {
				r.Elapsed += r.last.Sub(began)
			}
		}
	}
	if cold, err = cold.orError(ctx); err == nil {
		warm, err = warm.orError(ctx)
	}
	return cold, warm, err
}
