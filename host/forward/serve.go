package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/sharding"
)

// serverStream is one stream from another node. The goroutine of the call
// reads: each message becomes one batch and one Submit. A second goroutine
// writes everything that has completed when it looks, as one message.
type serverStream struct {
	server     *Server
	conn       *connect.BidiStream[wire.Message, wire.Message]
	controller *controller
	name       streamName
	names      names
	callers    callers
	scratch    []byte

	wake chan struct{} // one slot: something completed, or the input ended
	room chan struct{} // one slot: fewer requests are in flight
	gone chan struct{} // closed when the writer has ended

	// handing is held while a batch is submitted, which does not block. The
	// stream that replaces this one waits for it.
	handing  sync.Mutex
	replaced atomic.Bool

	mu       sync.Mutex
	done     []*item
	inFlight int
	bytes    int
	// sentBack is, by shard, the highest round of a request that was sent back.
	sentBack map[sharding.ShardID]uint64
	eof      bool
	closed   bool
}

func (s *Server) forward(ctx context.Context, conn *connect.BidiStream[wire.Message, wire.Message]) error {
	st := &serverStream{
		server: s, conn: conn, name: streamName{s.opts.Caller(ctx), conn.RequestHeader().Get(headerLink)},
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	st.controller, _ = ctx.Value(controllerKey{}).(*controller)
	if st.name.name == "" || st.controller == nil {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("the stream has no name"))
	}
	if err := s.enter(st); err != nil {
		return err
	}
	defer s.leave(st)
	if err := conn.Send(&wire.Message{}); err != nil { // the greeting
		return err
	}
	var writeErr error
	go func() {
		defer close(st.gone)
		if writeErr = st.write(ctx); writeErr != nil {
			st.controller.stopReading()
		}
	}()
	readErr := st.read()
	st.endInput()
	<-st.gone
	st.close()
	if readErr == nil && writeErr == nil {
		return nil
	}
	return connect.NewError(connect.CodeUnavailable, errors.Join(readErr, writeErr))
}

// read receives messages until the client's half-close, which is not an error.
func (st *serverStream) read() error {
	for {
		b := st.server.batches.get()
		b.stream = st
		err := st.conn.Conn().Receive(&b.message)
		if err == nil {
			err = st.parse(b)
		}
		if err == nil {
			err = st.reserve(b)
		}
		if err != nil {
			st.server.batches.put(b)
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := st.submit(b); err != nil {
			return err
		}
	}
}

// parse decodes a message into the items of its batch. A malformed message ends
// the stream.
func (st *serverStream) parse(b *batch) error {
	now := st.server.opts.Clock()
	var a wireRequest
	return items(b.message.Bytes, func(encoded []byte) error {
		if len(b.items) == maxMessageItems {
			return errors.New("too many requests in one message")
		}
		if err := a.parse(encoded); err != nil {
			return err
		}
		b.items = append(b.items, item{batch: b, correlation: a.correlation, round: a.round})
		it := &b.items[len(b.items)-1]
		var err error
		st.scratch, err = a.fill(&it.req, &st.names, &st.callers, st.scratch, now)
		it.req.Shard, _ = st.server.opts.Locate(it.req.Entity)
		if it.shard = it.req.Shard; a.shard != 0 {
			it.shard = sharding.ShardID(a.shard) // this node may learn of the shard only later
		}
		return err
	})
}

// reserve waits until the batch fits among the requests in flight.
func (st *serverStream) reserve(b *batch) error {
	o := &st.server.opts
	if len(b.items) == 0 {
		return nil
	}
	for {
		st.mu.Lock()
		if st.inFlight == 0 || st.inFlight+len(b.items) <= o.StreamRequests && st.bytes+len(b.message.Bytes) <= o.StreamBytes {
			st.inFlight += len(b.items)
			st.bytes += len(b.message.Bytes)
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

// submit submits the batch to this node's shard router unless the stream was
// replaced.
func (st *serverStream) submit(b *batch) error {
	b.refs.Store(int32(len(b.items)) + 1)
	for i := range b.items {
		it := &b.items[i]
		it.req.Done, it.req.Tag = b, uint64(i)
		if it.req.Result.Err = st.refusal(it); it.req.Result.Err == nil && st.server.opts.Roles != nil {
			it.req.Result.Err = st.server.opts.Roles.AuthorizeForwarded(&it.req)
		}
		if it.req.Result.Err == nil {
			st.server.opts.OnForwarded(st.name.node, &it.req)
			b.submit = append(b.submit, &it.req)
		}
	}
	st.handing.Lock()
	if st.replaced.Load() {
		st.handing.Unlock()
		b.release(int32(len(b.items)) + 1)
		return errReplaced
	}
	if len(b.submit) < len(b.items) {
		for i := range b.items {
			if it := &b.items[i]; it.req.Result.Err != nil {
				b.Complete(&it.req)
			}
		}
	}
	if len(b.submit) > 0 {
		st.server.opts.Local.Submit(b.submit)
	}
	st.handing.Unlock()
	b.release(1)
	return nil
}

// refusal returns why a request must not run, or nil. A delivery is rejected if
// its node does not lead the source's shard; the dispatcher then retries,
// because the node may have become the leader a moment ago. Any request is
// rejected if another request of its round was sent back, because it may be
// the later of the two and would overtake the returned request.
func (st *serverStream) refusal(it *item) error {
	if d := it.req.Delivery; d != nil {
		if source, known := st.server.opts.Locate(d.Source); !known || !st.server.opts.Leaders.MayLead(st.name.node, source) {
			return fmt.Errorf("%w: the node that delivers a message does not lead the message's source shard", request.ErrNotReady)
		}
	}
	if it.round == 0 {
		return nil
	}
	st.mu.Lock()
	round := st.sentBack[it.shard]
	st.mu.Unlock()
	if it.round <= round {
		return &sharding.NotLeaderError{Shard: it.shard}
	}
	return nil
}

// replace prevents the stream from submitting anything more, and ends it.
func (st *serverStream) replace() {
	st.replaced.Store(true)
	st.handing.Lock() // wait for the batch that is being submitted
	defer st.handing.Unlock()
	st.controller.deadline(pastTime)
}

// queueAnswer queues an item's answer. Executors call it; it does not block.
func (st *serverStream) queueAnswer(it *item) {
	st.mu.Lock()
	if err := it.req.Result.Err; err != nil && router.SentBack(err) && it.round > st.sentBack[it.shard] {
		if st.sentBack == nil {
			st.sentBack = make(map[sharding.ShardID]uint64)
		}
		st.sentBack[it.shard] = it.round
	}
	if st.closed {
		st.mu.Unlock()
		it.batch.release(1)
		return
	}
	st.done = append(st.done, it)
	first := len(st.done) == 1
	st.mu.Unlock()
	if first {
		signal(st.wake)
	}
}

// endInput lets the writer end when everything that was read has been answered.
func (st *serverStream) endInput() {
	st.mu.Lock()
	st.eof = true
	ended := st.inFlight == 0
	st.mu.Unlock()
	if ended {
		signal(st.wake)
	}
}

// close drops the answers that the writer did not write.
func (st *serverStream) close() {
	st.mu.Lock()
	st.closed = true
	rest := st.done
	st.done = nil
	st.mu.Unlock()
	for _, it := range rest {
		it.batch.release(1)
	}
}

// hint adds the leader to the error of a client that asked the wrong node.
func (st *serverStream) hint(res *request.Result) error {
	var notLeader *sharding.NotLeaderError
	if errors.As(res.Err, &notLeader) && notLeader.Leader == "" {
		return &sharding.NotLeaderError{Shard: notLeader.Shard, Term: notLeader.Term, Leader: st.server.leaderOf(notLeader.Shard)}
	}
	return res.Err
}
