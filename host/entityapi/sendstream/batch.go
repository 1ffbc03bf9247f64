package sendstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/rpc/quota"
)

// item is one command of a SendStream.
type item struct {
	batch       *batch
	correlation uint64
	answer      wire.PayloadKind
	beside      bool      // the payload is not part of the message
	state       itemState // guarded by the stream's mutex
	req         request.Request
}

// itemState is where an item is between the runtime and the writer. The
// transition that ends in released drops the item's reference to its batch.
//
//	          Complete             written
//	pending -----------> completed -------> released
//	   |    deadline              Complete
//	   +-----------> expired ------------> released
type itemState uint8

const (
	itemPending   itemState = iota
	itemCompleted           // in the stream's list of answers to write
	itemExpired             // answered for the runtime, which still has it
)

// batch is the commands of one message. It owns the memory they lie in and
// goes back to its pool when the last of them is released.
type batch struct {
	stream   *stream
	message  wire.Message // payloads alias it
	items    []item
	submit   []*request.Request
	arrived  time.Time
	deadline time.Time
	bytes    int64 // counted as waiting
	payer    *quota.Account
	refs     atomic.Int32

	// Guarded by the stream's mutex: how many items are not yet written, and
	// the batch's place in the stream's list while there are any.
	open       int
	prev, next *batch
}

// Bounds of what a pooled batch may hold on to.
const (
	maxPooledItems = 1024
	maxPooledBytes = 256 << 10
)

// batches are batches of commands that are used again.
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
	// An empty message is not decoded at all: it must not find the last one.
	b.message.Bytes = b.message.Bytes[:0]
	b.stream, b.payer, b.prev, b.next, b.open = nil, nil, nil, nil, 0
	p.pool.Put(b)
}

// size is what the batch counts for while it waits: payloads that were given as
// JSON values lie beside the message.
func (b *batch) size() int64 {
	n := len(b.message.Bytes) + admission.RequestBytes*len(b.items)
	for i := range b.items {
		if it := &b.items[i]; it.beside {
			n += len(it.req.Payload)
		}
	}
	return int64(n)
}

// release drops n references and recycles the batch with the last one.
func (b *batch) release(n int32) {
	if b.refs.Add(-n) == 0 {
		b.stream.release(b)
		b.stream.svc.batches.put(b)
	}
}

// Complete implements request.Completer: it queues the answer and returns.
func (b *batch) Complete(r *request.Request) {
	b.payer.Spend(r.Result.Fuel, len(r.Result.Payload))
	b.stream.completed(&b.items[r.Tag])
}

// batchList is a stream's batches with unwritten items, in order of arrival
// and thereby of deadlines.
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
