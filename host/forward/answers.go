package forward

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// pastTime, as a deadline, makes operations in progress fail.
var pastTime = time.Unix(1, 0)

// item is one request of another node.
type item struct {
	batch       *batch
	correlation uint64
	round       uint64
	shard       sharding.ShardID // the sender's shard, to which round belongs
	req         request.Request
}

// batch is the requests of one message. It owns their memory, and returns to
// its pool when the last request is released.
type batch struct {
	stream  *serverStream
	message wire.Message // payloads alias it
	items   []item
	submit  []*request.Request
	refs    atomic.Int32
	written int // items that were written; used only by the writer
}

// Bounds of the memory that a pooled batch may keep.
const (
	maxPooledItems = 1024
	maxPooledBytes = 512 << 10
)

// batches is a pool of batches.
type batches struct{ pool sync.Pool }

func (p *batches) get() *batch {
	if b, _ := p.pool.Get().(*batch); b != nil {
		return b
	}
	return new(batch)
}

func (p *batches) put(b *batch) {
	if cap(b.items) > maxPooledItems || cap(b.message.Bytes) > maxPooledBytes {
		return
	}
	clear(b.items)
	clear(b.submit)
	b.items, b.submit = b.items[:0], b.submit[:0]
	b.message.Bytes = b.message.Bytes[:0] // an empty message is not decoded at all
	b.stream, b.written = nil, 0
	p.pool.Put(b)
}

// release drops n references, and recycles the batch when none is left.
func (b *batch) release(n int32) {
	if b.refs.Add(-n) == 0 {
		b.stream.server.batches.put(b)
	}
}

// Complete implements request.Completer. It queues the answer and returns.
func (b *batch) Complete(r *request.Request) { b.stream.queueAnswer(&b.items[r.Tag]) }

// write sends answers until the input has ended and everything is answered, or
// ctx ends.
func (st *serverStream) write(ctx context.Context) error {
	var spare []*item
	var out wire.Message
	for {
		select {
		case <-st.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		st.mu.Lock()
		done := st.done
		st.done = spare
		st.mu.Unlock()
		err := st.send(&out, done)
		ended := st.settle(done)
		clear(done)
		spare = done[:0]
		if err != nil || ended {
			return err
		}
	}
}

// send writes the outcomes of items in messages of bounded size.
func (st *serverStream) send(out *wire.Message, done []*item) error {
	out.Bytes = out.Bytes[:0]
	var failure []byte
	for _, it := range done {
		res := &it.req.Result
		if failure = failure[:0]; res.Err != nil {
			failure = appendError(failure, st.hint(res))
		}
		if len(out.Bytes) > 0 && len(out.Bytes)+resultSize(res, failure) > maxMessageBytes {
			if err := st.conn.Send(out); err != nil {
				return err
			}
			out.Bytes = out.Bytes[:0]
		}
		out.Bytes = appendResult(out.Bytes, it.correlation, res, failure)
	}
	if len(out.Bytes) == 0 {
		return nil
	}
	err := st.conn.Send(out)
	if cap(out.Bytes) > 2*maxMessageBytes {
		out.Bytes = nil
	}
	return err
}

// settle releases items that have been written, and reports whether the stream
// is complete.
func (st *serverStream) settle(done []*item) (ended bool) {
	bytes := 0
	for _, it := range done {
		b := it.batch
		if b.written++; b.written == len(b.items) {
			bytes += len(b.message.Bytes)
		}
	}
	st.mu.Lock()
	st.inFlight -= len(done)
	st.bytes -= bytes
	ended = st.eof && st.inFlight == 0
	st.mu.Unlock()
	for _, it := range done {
		it.batch.release(1)
	}
	signal(st.room)
	return ended
}
