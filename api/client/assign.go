package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// idleCheck is how often a stream checks whether it should ask for the leaders.
const idleCheck = time.Second

// run assigns waiting routes to the nodes that lead their shards, until the
// stream is closed.
func (s *Stream) run(ctx context.Context) {
	defer close(s.gone)
	var streams sync.WaitGroup
	timer := time.NewTimer(idleCheck)
	defer timer.Stop()
	if s.learn(ctx, timer) {
		for !s.isDrained() && ctx.Err() == nil && s.reasonToEnd() == nil {
			s.refresh(ctx)
			timer.Reset(s.assign(ctx, time.Now(), &streams))
			select {
			case <-s.wake:
			case <-timer.C:
			case <-ctx.Done():
			}
		}
	}
	s.fail(ErrClosed)
	s.mu.Lock()
	s.ending = true
	for _, w := range s.streams {
		signal(w.wake)
	}
	s.mu.Unlock()
	if !s.isDrained() {
		s.stop()
	}
	streams.Wait()
	s.abandon(&Error{Code: connect.CodeUnknown, Message: "the stream was closed before the response arrived"})
}

func (s *Stream) reasonToEnd() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fatal
}

// learn fetches the shards before the first command is sent, because they
// determine the route of each command. If the cluster does not report its
// shards, one route carries everything. It returns false if the stream ends
// first.
func (s *Stream) learn(ctx context.Context, timer *time.Timer) bool {
	c := s.c
	pause := newBackoff(c.opts)
	for refused := 0; ; {
		s.mu.Lock()
		work, over := s.open > 0, s.closing && s.open == 0
		s.mu.Unlock()
		if over || ctx.Err() != nil {
			return false
		}
		if !work {
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
			continue
		}
		if c.opts.GivenOnly || c.learner.known.Load() != nil {
			c.freshen(ctx)
			break
		}
		_, at := c.current()
		err := c.learn(ctx)
		if err == nil {
			break
		}
		if !judge(err).retry {
			break
		}
		if connect.IsWireError(err) {
			if refused++; refused > 100 {
				break // nodes answer, but do not report their shards
			}
		}
		c.next(at)
		s.expire(time.Now(), clientError(err))
		timer.Reset(pause.length())
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	s.shape()
	return true
}

// shape makes a route for each shard, if the shards are known.
func (s *Stream) shape() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.ready = s.c.learner.known.Load(), true
	if s.c.opts.GivenOnly || s.known == nil || s.known.shards == 0 {
		return
	}
	first := s.routes[0].held.first
	s.routes = make([]shardRoute, s.known.shards+1)
	s.keys, s.strangers = make(map[string]ShardKey), make(map[string]int)
	for i := range s.routes {
		s.routes[i].shard = uint32(i)
	}
	for p := first; p != nil; {
		next := p.next
		p.route = s.routeOf(&p.cmd)
		p.route.held.push(p)
		p = next
	}
}

// routeOf returns the route of a command. The caller holds the mutex.
func (s *Stream) routeOf(cmd *Command) *shardRoute {
	if len(s.routes) == 1 {
		return &s.routes[0]
	}
	if s.strangers[cmd.EntityType] == 0 {
		if key, known := s.key(cmd.EntityType); known {
			return &s.routes[key.ShardOf(cmd.EntityType, cmd.EntityID, uint32(len(s.routes)-1))]
		}
	}
	s.strangers[cmd.EntityType]++
	return &s.routes[0]
}

// key returns the shard key that the stream uses for a type. It keeps the
// first key that it learns, even if nodes report a different key later, so
// that no entity changes its route. The caller holds the mutex.
func (s *Stream) key(entityType string) (ShardKey, bool) {
	if key, settled := s.keys[entityType]; settled {
		return key, true
	}
	known := s.c.learner.known.Load()
	key, told := known.key(entityType)
	if !told {
		s.c.learner.stale.Store(true)
		return key, false
	}
	s.keys[entityType] = key
	return key, true
}

// refresh asks for the leaders if there is a sign that they may have changed,
// and removes routes to nodes that no longer lead their shards.
func (s *Stream) refresh(ctx context.Context) {
	s.c.freshen(ctx)
	known := s.c.learner.known.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if known == s.known || len(s.routes) == 1 {
		return
	}
	s.known = known
	for i := range s.routes {
		l := &s.routes[i]
		if leader := known.leader(l.shard); l.stream != nil && leader != nil && leader != l.stream.n {
			l.leave()
		}
	}
}

// ranAt records where a command ran, and removes its route to a node that
// forwards its commands. It reports whether the route waits now. The caller
// holds the mutex.
func (s *Stream) ranAt(p *pending, w *nodeStream, nodeID string) bool {
	l := p.route
	if name := w.n.id.Load(); l.shard == 0 || name == nil || *name == nodeID || l.stream != w {
		return false
	}
	about := route{p.cmd.EntityType, p.cmd.EntityID}
	s.c.answeredBy(about, w.n, nodeID)
	if s.c.learner.known.Load().shard(about) != l.shard {
		return false // the stream guessed the shard key of this type
	}
	if leader := s.c.learner.known.Load().leader(l.shard); leader == nil || leader == w.n {
		return s.c.learner.stale.Load()
	}
	l.stream = nil // p itself is still outstanding
	return true
}

// assign assigns every waiting route to a node, and fails the commands that
// have waited too long. It returns the time of the next check.
func (s *Stream) assign(ctx context.Context, now time.Time, streams *sync.WaitGroup) time.Duration {
	s.expire(now, nil)
	wait := idleCheck
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.routes {
		l := &s.routes[i]
		if !l.waiting() {
			continue
		}
		if left := l.after.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		n, _ := s.c.current()
		if leader := s.c.learner.known.Load().leader(l.shard); leader != nil && l.shard != 0 {
			n = leader
		}
		w := s.streams[n]
		if w == nil {
			w = &nodeStream{s: s, n: n, wake: make(chan struct{}, 1)}
			s.streams[n] = w
			streams.Go(func() { w.run(ctx) })
		}
		l.give(w)
	}
	return wait
}

// broke gives the commands of a connection that ended back to their routes.
func (s *Stream) broke(w *nodeStream, at uint32, answered bool, err error) {
	if isFatal(err) {
		s.fail(clientError(err))
		signal(s.wake)
	}
	if err == nil {
		err = errors.New("the node closed the stream")
	}
	// Without a connection no command has been sent.
	connected := connect.IsWireError(err) || judge(err).carried
	now := time.Now()
	s.mu.Lock()
	for p := w.list.first; p != nil; p = w.list.first {
		w.remove(p)
		p.carried, p.sent = p.carried || p.sent && connected, false
		if answered {
			p.route.pause = 0
		}
		s.c.lostLeader(p.route.shard, w.n)
		p.route.cameBack(p, clientError(err), now, &s.c.opts)
	}
	// A route without outstanding commands must not stay assigned to a failed
	// node.
	for i := range s.routes {
		if s.routes[i].stream == w {
			s.routes[i].leave()
		}
	}
	s.mu.Unlock()
	s.c.noteFailure(route{}, w.n, at, answered || connect.IsWireError(err))
	signal(s.wake)
}

// expire fails the commands that are not tried again. cause, if set, says why
// no command can be sent.
func (s *Stream) expire(now time.Time, cause error) {
	s.drop(func(p *pending) (error, bool) {
		if cause != nil {
			if p.failed = cause; p.since.IsZero() {
				p.since = now
			}
		}
		if !p.route.over(p, now, s.opts.ResendFor) {
			return nil, false
		}
		return p.failure(), true
	})
}

// abandon fails every remaining command: unsent commands with the reason why
// the stream ended, and other commands with err.
func (s *Stream) abandon(err error) {
	why := s.reasonToEnd()
	s.drop(func(p *pending) (error, bool) {
		if p.carried || why == nil || errors.Is(why, ErrClosed) {
			return err, true
		}
		return why, true
	})
}

// drop fails the held commands for which the function which returns true, with
// the error that it returns.
func (s *Stream) drop(which func(*pending) (error, bool)) {
	type ended struct {
		p    *pending
		done func(Reply, error)
		err  error
	}
	var all []ended
	s.mu.Lock()
	for i := range s.routes {
		l := &s.routes[i]
		for p := l.held.first; p != nil; {
			next := p.next
			if err, yes := which(p); yes {
				l.held.remove(p)
				all = append(all, ended{p: p, err: err, done: s.close(p)})
			}
			p = next
		}
	}
	s.mu.Unlock()
	for _, e := range all {
		e.done(Reply{}, e.err)
		s.free <- e.p
	}
}
