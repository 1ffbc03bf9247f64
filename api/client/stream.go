package client

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// StreamOptions shape a Stream. The zero value is ready to use.
type StreamOptions struct {
	// Outstanding bounds the commands sent and not answered (256); Send waits
	// for room.
	Outstanding int
	// ResendFor is how long after its connection broke a command is sent again
	// over new ones before it fails with its outcome unknown (30 s).
	ResendFor time.Duration
}

// Stream sends many commands over one connection. Whatever has been given to
// Send when the connection can take more leaves in one message; no timer holds
// anything back. Commands to one entity run in the order of Send. When the
// connection breaks, the stream opens another one, to the next node, and sends
// what is not answered again, in order and under the same command ids. A
// command that a node answers with an error is not tried again: later commands
// to its entity may have run.
//
// It is safe for concurrent use. It owns two goroutines until Close.
type Stream struct {
	c    *Client
	opts StreamOptions
	free chan *pending // one for every command that may still be sent
	wake chan struct{} // one slot: there is something to send, or to end
	stop context.CancelFunc
	gone chan struct{} // closed when the stream has ended

	mu      sync.Mutex
	slots   []pending
	list    pendingList // commands not answered, in the order of Send
	unsent  *pending    // the first of list that this connection has not carried
	closing bool
	fatal   error         // why Send fails; set once
	empty   chan struct{} // closed when closing and nothing is left to answer
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
		c:     c,
		opts:  opts,
		free:  make(chan *pending, opts.Outstanding),
		wake:  make(chan struct{}, 1),
		stop:  cancel,
		gone:  make(chan struct{}),
		slots: make([]pending, opts.Outstanding),
		empty: make(chan struct{}),
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
	p.cmd, p.done, p.carried, p.sent, p.broken = cmd, done, false, false, time.Time{}
	s.list.push(p)
	first := s.unsent == nil
	if first {
		s.unsent = p
	}
	s.mu.Unlock()
	if first {
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
		if s.list.first == nil {
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

// run keeps a connection until the stream is closed.
func (s *Stream) run(ctx context.Context) {
	defer close(s.gone)
	pause := newBackoff(s.c.opts)
	for {
		if !s.waitForWork(ctx) {
			break
		}
		n, at := s.c.current()
		answered, err := s.connection(ctx, n)
		if ctx.Err() != nil || err == nil && s.drained() {
			break
		}
		if isFatal(err) {
			s.fail(typed(err))
			break
		}
		if answered {
			pause.reset()
		}
		s.c.next(at)
		s.expire(time.Now(), err)
		if pause.wait(ctx) != nil {
			break
		}
	}
	s.fail(ErrClosed)
	s.abandon(&Error{Code: connect.CodeUnknown, Message: "the stream was closed before the answer came"})
}

// waitForWork waits until there is something to send. It reports false when
// the stream ends without.
func (s *Stream) waitForWork(ctx context.Context) bool {
	for {
		s.mu.Lock()
		work, ended := s.list.first != nil, s.closing
		s.mu.Unlock()
		if work || ended {
			return work
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// drained reports that the stream is closing and nothing is left to answer.
func (s *Stream) drained() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing && s.list.first == nil
}

// fail makes Send return err from now on.
func (s *Stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fatal == nil {
		s.fatal = err
	}
}

// abandon fails every command that is left.
func (s *Stream) abandon(err error) { s.drop(func(*pending) bool { return true }, err) }

// expire fails the commands that have been waiting for a connection too long;
// one has just broken.
func (s *Stream) expire(now time.Time, cause error) {
	s.mu.Lock()
	for p := s.list.first; p != nil; p = p.next {
		if p.broken.IsZero() {
			p.broken = now
		}
	}
	s.mu.Unlock()
	message := "the connection was lost before the answer came"
	if cause != nil {
		message += ": " + cause.Error()
	}
	s.drop(func(p *pending) bool { return !p.broken.IsZero() && now.Sub(p.broken) >= s.opts.ResendFor },
		&Error{Code: connect.CodeUnknown, Message: message})
}

// drop fails commands from the front of the list while which holds.
func (s *Stream) drop(which func(*pending) bool, err error) {
	for {
		s.mu.Lock()
		p := s.list.first
		if p == nil || !which(p) {
			s.mu.Unlock()
			return
		}
		done := s.finish(p)
		s.mu.Unlock()
		done(Reply{}, err)
		s.free <- p
	}
}

// finish takes a command off the list; the mutex is held. The caller calls the
// returned func and then gives the slot back.
func (s *Stream) finish(p *pending) (done func(Reply, error)) {
	if s.unsent == p {
		s.unsent = p.next
	}
	s.list.remove(p)
	if s.closing && s.list.first == nil {
		close(s.empty)
	}
	done = p.done
	p.cmd, p.done = Command{}, nil
	return done
}

// signal puts a value into a one-slot channel unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
