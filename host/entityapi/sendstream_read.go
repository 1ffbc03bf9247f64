package entityapi

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// maxStreamItems limits the commands of one message.
const maxStreamItems = 1024

// stream is one SendCommandStream call.
//
// A stream carries many small commands, so the costs for each command decide
// how fast it is. At the same time a client that sends without reading, or a
// runtime that is slow, must not fill the node's memory.
//
// The unit of work is therefore the batch, which has the commands of one
// message. The goroutine of the call reads a message, parses it into the items
// of a batch without copying binary payloads, waits until the batch fits the
// limits, and submits it with one Submit, which keeps the order of commands.
// Completions come from executors, in any order; they only append the item to
// done and wake the writer. A second goroutine, the writer, takes the whole
// list each time and sends it in as few messages as possible, so answers are
// combined more, the busier the stream is.
//
// Invariants:
//
//   - Every item is answered exactly once: after its completion, or at its
//     deadline by expire. itemState decides which comes first.
//   - A batch and its memory stay valid until its last reference is dropped.
//     There is one reference for each item, one for the reader during submit,
//     and one more for each expired item, because the writer and the late
//     completion both release it.
//   - inFlight falls when an answer is written, and bytes falls when a batch is
//     released. So both a client that does not read and a runtime that is slow
//     stop the reader.
//
// A goroutine for each command would be simpler, but it would cost more than
// the command itself, and it would lose the order of commands.
type stream struct {
	svc      *sendStreams
	conn     *connect.BidiStream[wire.Message, wire.Message]
	guard    *admission.Stream
	charge   *admission.Charge // charge for the last message that was read
	share    admission.Share   // charged for the batches
	deadline time.Time         // deadline of the whole stream; zero if it has none
	who      *principal.Principal
	trace    *request.Trace // the call's span
	names    interner
	scratch  []byte
	stranger stranger
	nodes    map[sharding.NodeID][]byte // used by the writer only

	wake chan struct{} // one slot: an item was completed, or the input ended
	room chan struct{} // one slot: the commands or bytes in flight have decreased
	gone chan struct{} // closed when the writer has ended

	mu       sync.Mutex
	done     []*item   // items completed but not taken by the writer yet
	waiting  batchList // batches with unwritten items
	inFlight int       // items read but not written yet
	bytes    int64     // size of the batches that are not released yet
	eof      bool      // no more input: the stream ends when inFlight is 0
	closed   bool      // the writer has ended: completions only release their items
}

// read reads messages until the client closes its side, which is not an error.
func (st *stream) read(ctx context.Context) error {
	for {
		b := st.svc.batches.get()
		b.stream = st
		err := st.conn.Conn().Receive(&b.message)
		if err == nil {
			b.arrived = time.Now()
			err = st.parse(ctx, b)
		}
		st.charge.EndDecoding()
		if err == nil {
			err = st.svc.Arrivals.Check(ctx)
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

// parse converts a message to the items of its batch. An error in one command
// becomes the outcome of that item.
func (st *stream) parse(ctx context.Context, b *batch) error {
	st.stranger = stranger{}
	b.payer = st.svc.Quotas.Of(ctx)
	err := wire.ParseRequest(b.message.Bytes, func(c *wire.Command) error {
		if len(b.items) == maxStreamItems {
			return status.Argument("a message must have at most 1,024 commands")
		}
		b.items = append(b.items, item{batch: b, correlation: c.Correlation})
		it := &b.items[len(b.items)-1]
		it.req.Result.Err = st.fill(ctx, it, c)
		return nil
	})
	if errors.Is(err, wire.ErrMalformed) {
		return status.Argument("a message of the stream cannot be decoded")
	}
	return err
}

// fill makes the request of one command. Entity id and command id share one
// allocation; the payload stays in the batch's message.
func (st *stream) fill(ctx context.Context, it *item, c *wire.Command) error {
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
	if err := checkRetry(commandID, c.FirstAge); err != nil {
		return err
	}
	if st.svc.Auth != nil {
		if err := st.svc.Auth.Command(ctx, r.Entity.Type, r.Entity.ID, r.Name, commandID); err != nil {
			return err
		}
	}
	r.First = it.batch.arrived
	setFirstAttempt(r, c.FirstAge)
	r.ID, r.ServerID = journal.CommandID(commandID), false
	if r.ID == "" {
		r.ID, r.ServerID = st.svc.ids.Next(), true
	}
	var err error
	r.Principal, r.Roles = st.who, st.svc.Auth.Revision()
	if r.ExpectedSequence, err = expectation(c.HasExpected, c.Expected); err != nil {
		return err
	}
	if st.stranger.entityType == r.Entity.Type && st.stranger.err != nil {
		return st.stranger.err
	}
	it.beside = c.Kind == wire.JSONPayload
	it.answer, r.Payload, err = admitEncoded(ctx, st.svc.Types, r.Entity, c.Kind, c.Payload)
	if errors.Is(err, request.ErrUnknownType) || errors.Is(err, request.ErrNotReady) {
		st.stranger = stranger{r.Entity.Type, err}
	}
	if err != nil {
		return err
	}
	return it.batch.payer.Take(len(r.Payload))
}

// stranger is a type that the node could not look up for a command of the
// current message. Remembering the type avoids another read of the metadata
// for each further command of the message with this type.
type stranger struct {
	entityType string
	err        error
}

// reserve waits until the batch fits the stream's limits of commands and bytes
// in flight.
func (st *stream) reserve(b *batch) error {
	for {
		st.mu.Lock()
		if st.fits(b) {
			st.inFlight += len(b.items)
			st.count(b)
			b.open = len(b.items)
			b.deadline = time.Now().Add(st.svc.Deadline.Standard)
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

// fits reports whether the batch fits the stream's limits. st.mu must be held.
func (st *stream) fits(b *batch) bool {
	return (st.inFlight == 0 || st.inFlight+len(b.items) <= st.svc.MaxInFlight) && (st.bytes == 0 || st.bytes+b.size() <= st.svc.MaxBytes)
}

// count charges the batch to the stream and the node. st.mu must be held.
func (st *stream) count(b *batch) {
	st.charge.Settle() // the batch carries the charge from now on
	bytes := b.size()
	err := st.share.Take(bytes)
	if err == nil {
		b.bytes = bytes
		st.bytes += bytes
		return
	}
	for i := range b.items {
		if r := &b.items[i].req; r.Result.Err == nil {
			r.Result.Err = err
		}
		b.items[i].req.Payload = nil
	}
	b.message.Bytes = nil
}

// release ends the charge of a batch that the runtime has released.
func (st *stream) release(b *batch) {
	if b.bytes == 0 {
		return
	}
	st.share.Give(b.bytes)
	st.mu.Lock()
	st.bytes -= b.bytes
	st.mu.Unlock()
	b.bytes = 0
	signal(st.room)
}

// submit submits the batch to the runtime, and answers the items whose outcome
// is already known.
func (st *stream) submit(ctx context.Context, b *batch) {
	if err := st.svc.Arrivals.Check(ctx); err != nil {
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
		it.req.Kind = request.Command
		it.req.Deadline = b.deadline
		it.req.Done = b
		it.req.Route.Ordered = true
		it.req.Tag = uint64(i)
		it.req.Trace = st.trace
		b.submit = append(b.submit, &it.req)
	}
	if len(b.submit) < len(b.items) {
		for i := range b.items {
			if it := &b.items[i]; it.req.Result.Err != nil {
				st.queueAnswer(it)
			}
		}
	}
	if len(b.submit) > 0 {
		st.svc.Runtime.Submit(b.submit)
	}
	b.release(1)
}

// queueAnswer queues the answer of an item. Executors call it, so it does not
// block.
func (st *stream) queueAnswer(it *item) {
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
