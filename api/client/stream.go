package client

import (
	"context"
	"sync"
	"time"
)

// StreamOptions shape a Stream. The zero value is ready to use.
type StreamOptions struct {
	// Outstanding bounds the commands sent and not answered (256); Send waits
	// for room.
	Outstanding int
	// ResendFor is how long after its first attempt failed a command is sent
	// again before it fails (30 s), where the context of Send has no deadline
	// before.
	ResendFor time.Duration
}

// Stream sends many commands over one connection to each node that leads some
// of their entities. Whatever has been given to Send when a connection can take
// more leaves in one message; no timer holds anything back. Commands to one
// entity run in the order of Send, also while the entity moves to another node.
// A command that no node has run, or whose connection broke, is sent again, in
// order and under its id, until the deadline of Send's context or for
// ResendFor. A command that a node answers with another error is not tried
// again: later commands to its entity may have run. One case is not found out:
// a node that refuses a command because it does not lead, leads again, runs
// later ones and dies before any of its answers has come; then that one runs
// behind them.
//
// It is safe for concurrent use. It owns one goroutine until Close, and two for
// each node that it sends to.
type Stream struct {
	c    *Client
	opts StreamOptions
	free chan *pending // one for every command that may still be sent
	wake chan struct{} // one slot: a route waits, or the stream ends
	stop context.CancelFunc
	gone chan struct{} // closed when the stream has ended

	mu      sync.Mutex
	slots   []pending
	routes  []shardRoute // by shard; one until the shards are known
	streams map[*node]*nodeStream
	number  uint64 // of the last command
	open    int    // commands not answered
	known   *topology
	keys    map[string]ShardKey // by type, of those that were sent
	// strangers counts the commands that are open, by type, which took the first
	// route because nobody has told of the type yet.
	strangers map[string]int
	ready     bool // routes are what they stay
	closing   bool
	ending    bool          // streams end when they have nothing to do
	fatal     error         // why Send fails; set once
	empty     chan struct{} // closed when closing and nothing is left to answer
}

// Stream opens a stream. It connects in the background.
func (c *Client) Stream(opts StreamOptions) *Stream {
	if opts.Outstanding <= 0 {
		opts.Outstanding = 256
	}
	if opts.ResendFor <= 0 {
		opts.ResendFor = 30 * time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Stream{
		c:       c,
		opts:    opts,
		free:    make(chan *pending, opts.Outstanding),
		wake:    make(chan struct{}, 1),
		stop:    cancel,
		gone:    make(chan struct{}),
		slots:   make([]pending, opts.Outstanding),
		empty:   make(chan struct{}),
		routes:  make([]shardRoute, 1),
		streams: make(map[*node]*nodeStream),
	}
	for i := range s.slots {
		s.slots[i].index = uint32(i)
		s.free <- &s.slots[i]
	}
	go s.run(ctx)
	return s
}

// Send queues a command and returns; it waits only for a place among the
// outstanding commands, no longer than ctx. done is called exactly once if and
// only if Send returns nil: from the stream's own goroutine, so it must not
// block and must not call Send with a context that cannot end. The reply's
// Data is valid during done only. cmd.Data stays unchanged until then.
func (s *Stream) Send(ctx context.Context, cmd Command, done func(Reply, error)) error {
	var p *pending
	select {
	case p = <-s.free:
	default:
		select {
		case p = <-s.free:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.gone:
			return s.reason()
		}
	}
	if cmd.ID == "" {
		cmd.ID = NewCommandID()
	}
	s.mu.Lock()
	if s.closing || s.fatal != nil {
		s.mu.Unlock()
		s.free <- p
		return s.reason()
	}
	p.generation++
	s.number++
	s.open++
	p.number, p.cmd, p.done = s.number, cmd, done
	p.carried, p.sent, p.overtaken, p.failed, p.since = false, false, false, nil, time.Time{}
	p.until, _ = ctx.Deadline()
	p.route = s.routeOf(&cmd)
	waits := p.route.stream == nil
	if waits {
		p.route.held.push(p)
	} else {
		p.route.out++
		p.route.stream.push(p)
	}
	s.mu.Unlock()
	if waits {
		signal(s.wake)
	}
	return nil
}

// Call sends a command and waits for its reply. When ctx ends first, the
// command may still run.
func (s *Stream) Call(ctx context.Context, cmd Command) (Reply, error) {
	type outcome struct {
		reply Reply
		err   error
	}
	answered := make(chan outcome, 1)
	err := s.Send(ctx, cmd, func(r Reply, err error) {
		r.Data = append([]byte(nil), r.Data...)
		answered <- outcome{r, err}
	})
	if err != nil {
		return Reply{}, err
	}
	select {
	case o := <-answered:
		return o.reply, o.err
	case <-ctx.Done():
		return Reply{}, ctx.Err()
	}
}

// Close takes no more commands, waits until all are answered and ends the
// stream. When ctx ends first, what is left fails with its outcome unknown,
// and Close returns the error of ctx.
func (s *Stream) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		if s.open == 0 {
			close(s.empty)
		}
	}
	s.mu.Unlock()
	var err error
	select {
	case <-s.empty:
		signal(s.wake)
		select {
		case <-s.gone:
		case <-ctx.Done(): // the server does not end the stream: cut it
			err = ctx.Err()
		}
	case <-s.gone:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.stop()
	<-s.gone
	return err
}

// reason says why Send fails.
func (s *Stream) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fatal != nil {
		return s.fatal
	}
	return ErrClosed
}

// drained reports that the stream is closing and nothing is left to answer.
func (s *Stream) drained() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing && s.open == 0
}

// isEnding reports that nothing is sent any more; the mutex is held.
func (s *Stream) isEnding() bool { return s.ending || s.fatal != nil }

// fail makes Send return err from now on.
func (s *Stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fatal == nil {
		s.fatal = err
	}
}

// finish takes the account of a command that has its outcome; the mutex is
// held. The caller calls the returned func and then gives the slot back.
func (s *Stream) finish(p *pending, fine bool) (done func(Reply, error)) {
	p.route.ended(p, fine)
	return s.close(p)
}

// close frees a command that is on no list; the mutex is held.
func (s *Stream) close(p *pending) (done func(Reply, error)) {
	done = p.done
	if p.route == &s.routes[0] && s.strangers != nil {
		if s.strangers[p.cmd.EntityType]--; s.strangers[p.cmd.EntityType] == 0 {
			delete(s.strangers, p.cmd.EntityType)
		}
	}
	p.cmd, p.done, p.route, p.failed = Command{}, nil, nil, nil
	if s.open--; s.closing && s.open == 0 {
		close(s.empty)
	}
	return done
}

// signal puts a value into a one-slot channel unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
