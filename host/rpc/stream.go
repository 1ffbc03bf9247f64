package rpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// maxStreamItems bounds the commands of one message.
const maxStreamItems = 1024

// streamService answers SendStream. Its messages pass through the codec as
// bytes and are taken apart here.
type streamService struct {
	*entityService
	nodeIDBytes []byte
	batches     batches
	maxInFlight int
	metrics     *metrics
}

// sendStream is one SendStream call. The goroutine of the call reads: every
// message becomes one batch and one Submit. A second one writes whatever has
// been completed when it looks, as one message. Completions come from lanes
// and only append to a list.
type sendStream struct {
	svc      *streamService
	conn     *connect.BidiStream[wire.Message, wire.Message]
	guard    *guarded
	deadline time.Time // of the whole stream; zero when it has none
	names    interner
	scratch  []byte
	stranger stranger
	nodes    map[sharding.NodeID][]byte // the writer's

	wake chan struct{} // one slot: something was completed, or input ended
	room chan struct{} // one slot: commands in flight have become fewer
	gone chan struct{} // closed when the writer has ended

	mu       sync.Mutex
	done     []*item   // completed and not yet taken by the writer
	waiting  batchList // batches with items not yet written
	inFlight int       // items read and not yet written
	eof      bool      // no more input: end when inFlight is 0
	closed   bool      // nobody writes any more: completions only release
}

func (s *streamService) sendStream(ctx context.Context, conn *connect.BidiStream[wire.Message, wire.Message]) error {
	guard, err := s.guard.enter(ctx)
	if err != nil {
		return publicError(s.log, err)
	}
	defer guard.leave()
	st := &sendStream{
		svc:   s,
		conn:  conn,
		guard: guard,
		wake:  make(chan struct{}, 1),
		room:  make(chan struct{}, 1),
		gone:  make(chan struct{}),
	}
	st.deadline, _ = ctx.Deadline()
	var writeErr error
	go func() {
		defer close(st.gone)
		if writeErr = st.write(ctx); writeErr != nil {
			guard.abortRead()
		}
	}()
	readErr := st.read(ctx)
	st.endInput()
	<-st.gone
	st.close()
	switch {
	case writeErr != nil:
		return publicError(s.log, writeErr)
	case s.guard.isStopping():
		return connect.NewError(connect.CodeUnavailable, errStopping)
	case readErr != nil:
		return publicError(s.log, readErr)
	}
	return nil
}

// read takes messages until the client's half-close, which is no error.
func (st *sendStream) read(ctx context.Context) error {
	for {
		b := st.svc.batches.get()
		b.stream = st
		err := st.conn.Conn().Receive(&b.message)
		if err == nil {
			b.arrived = time.Now()
			err = st.parse(ctx, b)
		}
		if err == nil {
			err = st.svc.calls.arrivals.check(ctx)
		}
		if err == nil {
			err = st.reserve(b)
		}
		if err != nil {
			st.svc.batches.put(b)
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		st.submit(ctx, b)
	}
}

// parse turns a message into the items of its batch. What is wrong with one
// command becomes the outcome of that item.
func (st *sendStream) parse(ctx context.Context, b *batch) error {
	st.stranger = stranger{}
	err := wire.ParseRequest(b.message.Bytes, func(c *wire.Command) error {
		if len(b.items) == maxStreamItems {
			return &argumentError{"a message carries at most 1,024 commands"}
		}
		b.items = append(b.items, item{batch: b, correlation: c.Correlation})
		it := &b.items[len(b.items)-1]
		it.req.Result.Err = st.fill(ctx, it, c)
		return nil
	})
	if errors.Is(err, wire.ErrMalformed) {
		return &argumentError{"a message does not decode"}
	}
	return err
}

// fill makes the request of one command. Entity and command id share one
// allocation; the payload stays where it is, in the batch's message.
func (st *sendStream) fill(ctx context.Context, it *item, c *wire.Command) error {
	r := &it.req
	st.scratch = append(append(st.scratch[:0], c.EntityID...), c.CommandID...)
	joint := string(st.scratch)
	r.Entity.Type = st.names.get(c.EntityType)
	r.Entity.ID = joint[:len(c.EntityID)]
	r.Name = st.names.get(c.Name)
	commandID := joint[len(c.EntityID):]
	if err := checkName("command", r.Name); err != nil {
		return err
	}
	if err := checkCommandID(commandID); err != nil {
		return err
	}
	if err := checkRetry(commandID, c.FirstAgeMs); err != nil {
		return err
	}
	r.First = it.batch.arrived
	triedBefore(r, c.FirstAgeMs)
	r.ID, r.ServerID = journal.CommandID(commandID), false
	if r.ID == "" {
		r.ID, r.ServerID = st.svc.ids.next(), true
	}
	var err error
	if r.ExpectedSequence, err = expectation(c.HasExpected, c.Expected); err != nil {
		return err
	}
	if st.stranger.entityType == r.Entity.Type && st.stranger.err != nil {
		return st.stranger.err
	}
	it.answer, r.Payload, err = st.svc.admitEncoded(ctx, r.Entity, c.Kind, c.Payload)
	if errors.Is(err, entity.ErrUnknownType) || errors.Is(err, ErrNotReady) {
		st.stranger = stranger{r.Entity.Type, err}
	}
	return err
}

// stranger is a type that the node could not tell, of the commands of one
// message: each that names it would wait for the metadata to be read again.
type stranger struct {
	entityType string
	err        error
}

// reserve waits until the batch fits among the commands in flight.
func (st *sendStream) reserve(b *batch) error {
	for {
		st.mu.Lock()
		if st.inFlight == 0 || st.inFlight+len(b.items) <= st.svc.maxInFlight {
			st.inFlight += len(b.items)
			b.open = len(b.items)
			b.deadline = time.Now().Add(st.svc.calls.deadline.standard)
			if !st.deadline.IsZero() && st.deadline.Before(b.deadline) {
				b.deadline = st.deadline
			}
			if b.open > 0 {
				st.waiting.push(b)
			}
			st.mu.Unlock()
			return nil
		}
		st.mu.Unlock()
		select {
		case <-st.room:
		case <-st.gone:
			return io.ErrClosedPipe
		}
	}
}

// submit hands the batch to the runtime and answers what is already decided.
func (st *sendStream) submit(ctx context.Context, b *batch) {
	if err := st.svc.calls.arrivals.check(ctx); err != nil {
		for i := range b.items {
			b.items[i].req.Result.Err = err
		}
	}
	b.refs.Store(int32(len(b.items)) + 1)
	for i := range b.items {
		it := &b.items[i]
		if it.req.Result.Err != nil {
			continue
		}
		it.req.Kind = entity.Command
		it.req.Deadline = b.deadline
		it.req.Done = b
		it.req.Tag = uint64(i)
		b.submit = append(b.submit, &it.req)
	}
	if len(b.submit) < len(b.items) {
		for i := range b.items {
			if it := &b.items[i]; it.req.Result.Err != nil {
				st.completed(it)
			}
		}
	}
	if len(b.submit) > 0 {
		st.svc.deps.Runtime.Submit(b.submit)
	}
	b.release(1)
}

// completed queues an item's answer; it is called from lanes and does not
// block.
func (st *sendStream) completed(it *item) {
	st.mu.Lock()
	if st.closed || it.state == itemExpired {
		st.mu.Unlock()
		it.batch.release(1)
		return
	}
	it.state = itemCompleted
	st.done = append(st.done, it)
	first := len(st.done) == 1
	st.mu.Unlock()
	if first {
		signal(st.wake)
	}
}
