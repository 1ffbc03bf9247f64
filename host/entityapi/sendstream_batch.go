package entityapi

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/quota"
	"github.com/hostd/hostd/host/request"
)

// item is one command of a SendCommandStream.
type item struct {
	batch       *batch
	correlation uint64
	answer      wire.PayloadKind
	beside      bool      // the payload is outside of the message's memory
	state       itemState // guarded by the stream's mutex
	req         request.Request
}

// itemState is the state of an item between the runtime and the writer. An item
// that becomes released drops its reference to its batch.
//
//	          Complete             written
//	pending -----------> completed -------> released
//	   |    deadline              Complete
//	   +-----------> expired ------------> released
type itemState uint8

const (
	itemPending   itemState = iota
	itemCompleted           // in the stream's list of answers to be written
	itemExpired             // answered with an error, while the runtime still has the request
)

// batch has the commands of one message. It owns their memory, and returns to
// its pool when its last command is released.
type batch struct {
	stream   *stream
	message  wire.Message // memory to which payloads refer
	items    []item
	submit   []*request.Request
	arrived  time.Time
	deadline time.Time
	bytes    int64 // bytes taken from Waiting
	payer    *quota.Account
	refs     atomic.Int32

	// Guarded by the stream's mutex: the number of items that are not written
	// yet, and the links of the stream's list, which contains the batch while
	// that number is not 0.
	open       int
	prev, next *batch
}

// Limits of the memory that a pooled batch may keep.
const (
	maxPooledItems = 1024
	maxPooledBytes = 256 << 10
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
	// An empty message is not decoded at all, so Bytes must not contain the
	// previous message.
	b.message.Bytes = b.message.Bytes[:0]
	b.stream, b.payer, b.prev, b.next, b.open = nil, nil, nil, nil, 0
	p.pool.Put(b)
}

// size returns the bytes that the batch charges to Waiting. Payloads given as
// JSON values have memory of their own, apart from the message.
func (b *batch) size() int64 {
	n := len(b.message.Bytes) + admission.RequestBytes*len(b.items)
	for i := range b.items {
		if it := &b.items[i]; it.beside {
			n += len(it.req.Payload)
		}
	}
	return int64(n)
}

// release drops n references, and recycles the batch when no reference is
// left.
func (b *batch) release(n int32) {
	if b.refs.Add(-n) == 0 {
		b.stream.release(b)
		b.stream.svc.batches.put(b)
	}
}

// Complete implements request.Completer. It queues the answer and does not
// block.
func (b *batch) Complete(r *request.Request) {
	b.payer.Spend(r.Result.Fuel, len(r.Result.Payload))
	b.stream.queueAnswer(&b.items[r.Tag])
}

// batchList is a list of a stream's batches with unwritten items, in order of
// arrival and therefore of deadlines.
type batchList struct{ first, last *batch }

func (l *batchList) push(b *batch) {
	b.prev = l.last
	if l.last != nil {
		l.last.next = b
	} else {
		l.first = b
	}
	l.last = b
}

func (l *batchList) remove(b *batch) {
	if b.prev != nil {
		b.prev.next = b.next
	} else {
		l.first = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	} else {
		l.last = b.prev
	}
	b.prev, b.next = nil, nil
}
