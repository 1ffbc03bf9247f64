package client

import (
	"context"
	"sync"
	"time"
)

// StreamOptions configure a Stream. The zero value is ready to use.
type StreamOptions struct {
	// Outstanding limits the commands that are sent and not answered; default
	// 256. Send blocks while the limit is reached.
	Outstanding int
	// ResendFor is how long a command is retried after its first failed attempt
	// before it fails, unless the context of Send has an earlier deadline; default
	// 30 s.
	ResendFor time.Duration
}

// Stream sends many commands over one connection to each node that leads some
// of their entities. When a connection has room, everything that Send has
// queued by then leaves in one message; no timer delays it.
//
// Commands to one entity run in the order of Send, also while the entity's
// shard moves to another node. A command that no node has run, or whose
// connection broke, is sent again, in order and with its id, until the deadline
// of Send's context or for ResendFor. A command that a node answers with
// another error is not tried again, because later commands to its entity may
// have run.
//
// One kind of reordering is not detected: a node rejects a command because it
// does not lead, then leads again, runs later commands, and dies before any of
// its answers arrives. The rejected command then runs after the later ones.
//
// A Stream is safe for concurrent use. It owns one goroutine until Close, and
// two more for each node to which it sends.
type Stream struct {
	c    *Client
	opts StreamOptions
	free chan *pending // one element for every command that may still be sent
	wake chan struct{} // one slot: a route waits, or the stream ends
	stop context.CancelFunc
	gone chan struct{} // closed when the stream has ended

	mu      sync.Mutex
	slots   []pending
	routes  []shardRoute // routes by shard; a single route until the shards are known
	streams map[*node]*nodeStream
	number  uint64 // number of the last command
	open    int    // number of unanswered commands
	known   *topology
	keys    map[string]ShardKey // shard keys by type, for the types of the commands sent so far
	// strangers counts, by type, the open commands that use the first route
	// because no node has reported the type yet.
	strangers map[string]int
	ready     bool // the routes are final
	closing   bool
	ending    bool          // streams end when they are idle
	fatal     error         // the error with which Send fails; set once
	empty     chan struct{} // closed when closing and every command is answered
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

// Send queues a command and returns. It blocks only while too many commands are
// outstanding, and no longer than ctx allows. If and only if Send returns nil,
// done is called exactly once, on the stream's own goroutine: it must not block
// and must not call Send with a context that cannot end. The reply's Data is
// valid only during done. The caller must not change cmd.Data until then.
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

// Call sends a command and waits for its reply. If ctx ends first, the command
// may still run.
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

// Close accepts no more commands, waits until all are answered, and ends the
// stream. If ctx ends first, the remaining commands fail with their outcome
// unknown, and Close returns the error of ctx.
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
		case <-ctx.Done(): // the server does not end the stream, so cancel it
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

// reason returns the error with which Send fails.
func (s *Stream) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fatal != nil {
		return s.fatal
	}
	return ErrClosed
}

// isDrained reports whether the stream is closing and every command is answered.
func (s *Stream) isDrained() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing && s.open == 0
}

// isEnding reports whether no more commands are sent. The caller holds the
// mutex.
func (s *Stream) isEnding() bool { return s.ending || s.fatal != nil }

// fail makes Send return err from now on.
func (s *Stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fatal == nil {
		s.fatal = err
	}
}

// finish removes a command that has its outcome from the counts. The caller
// holds the mutex. Afterwards it must call the returned func and then release
// the slot.
func (s *Stream) finish(p *pending, fine bool) (done func(Reply, error)) {
	p.route.recordOutcome(p, fine)
	return s.close(p)
}

// close frees a command that is on no list. The caller holds the mutex.
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

// signal puts a value into a one-slot channel unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
