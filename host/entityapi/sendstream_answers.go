package entityapi

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/edge/codec"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

const (
	// maxAnswerBytes is the size at which a message of answers is split. A
	// larger answer is sent alone.
	maxAnswerBytes = 256 << 10
	// expiryInterval is how often missed deadlines are checked.
	expiryInterval = 250 * time.Millisecond
)

// write sends answers until the input has ended and everything is answered, ctx
// ends, or the client is gone.
func (st *stream) write(ctx context.Context) error {
	tick := time.NewTicker(expiryInterval)
	defer tick.Stop()
	var spare, late []*item
	var out wire.Message
	for {
		late = late[:0]
		select {
		case <-st.wake:
		case now := <-tick.C:
			late = st.expire(late, now)
		case <-ctx.Done():
			return ctx.Err()
		}
		items := st.take(spare)
		err := st.send(ctx, &out, items, late)
		ended := st.settle(items, late)
		clear(items)
		spare = items[:0]
		if err != nil || ended {
			return err
		}
	}
}

// take returns the list of completed items, and leaves the empty list spare
// in its place.
func (st *stream) take(spare []*item) []*item {
	st.mu.Lock()
	defer st.mu.Unlock()
	items := st.done
	st.done = spare
	return items
}

// expire marks the items whose deadline has passed as expired and appends them
// to late. The runtime still has their requests, so their outcome is unknown.
// For each item, a second reference to its batch keeps the batch alive until
// the item is written.
func (st *stream) expire(late []*item, now time.Time) []*item {
	st.mu.Lock()
	defer st.mu.Unlock()
	for b := st.waiting.first; b != nil && !now.Before(b.deadline); b = b.next {
		for i := range b.items {
			if it := &b.items[i]; it.state == itemPending {
				it.state = itemExpired
				b.refs.Add(1)
				late = append(late, it)
			}
		}
	}
	return late
}

// send writes answers in as few messages as their sizes allow.
func (st *stream) send(ctx context.Context, out *wire.Message, items, late []*item) error {
	out.Bytes = out.Bytes[:0]
	var a wire.Answer
	done := 0
	for i := range len(items) + len(late) {
		if i < len(items) {
			st.answer(ctx, &a, items[i])
		} else {
			st.failure(&a, late[i-len(items)].correlation, status.ErrNoOutcome)
		}
		if len(out.Bytes) > 0 && len(out.Bytes)+a.Size() > maxAnswerBytes {
			if err := st.flush(out); err != nil {
				return err
			}
		}
		out.Bytes = wire.AppendAnswer(out.Bytes, &a)
		if len(a.Code) == 0 {
			done++
		}
	}
	if len(out.Bytes) == 0 {
		return nil
	}
	st.svc.done.Add(float64(done))
	return st.flush(out)
}

func (st *stream) flush(out *wire.Message) error {
	st.guard.BeginWrite()
	err := st.conn.Send(out)
	st.guard.EndWrite()
	if cap(out.Bytes) > 2*maxAnswerBytes {
		out.Bytes = nil
	}
	out.Bytes = out.Bytes[:0]
	return err
}

// settle releases items that were written, and reports whether the stream is
// complete.
func (st *stream) settle(items, late []*item) (ended bool) {
	st.mu.Lock()
	for _, list := range [2][]*item{items, late} {
		for _, it := range list {
			b := it.batch
			if b.open--; b.open == 0 {
				st.waiting.remove(b)
			}
		}
		st.inFlight -= len(list)
	}
	ended = st.eof && st.inFlight == 0
	st.mu.Unlock()
	for _, list := range [2][]*item{items, late} {
		for _, it := range list {
			it.batch.release(1)
		}
	}
	signal(st.room)
	return ended
}

// answer fills *a with the outcome of a completed item.
func (st *stream) answer(ctx context.Context, a *wire.Answer, it *item) {
	res := &it.req.Result
	if res.Err != nil {
		if _, refused := errors.AsType[*request.DeniedError](res.Err); refused && it.req.Done != nil { // the node that leads the entity's shard has denied the command
			st.svc.Auth.ReportRefused(ctx, it.req.Entity.Type, it.req.Entity.ID, string(it.req.ID))
		}
		st.failure(a, it.correlation, res.Err)
		return
	}
	*a = wire.Answer{
		Correlation: it.correlation,
		Sequence:    uint64(res.Sequence),
		EventCount:  uint64(res.EventCount),
		Duplicate:   res.Duplicate,
		NodeID:      st.nodeName(res.Node),
		Fuel:        res.Fuel,
	}
	if len(res.Payload) == 0 {
		return
	}
	a.Kind, a.Payload = wire.DataPayload, res.Payload
	if it.answer == wire.JSONPayload {
		if v, _ := codec.Render(it.answer, res.Payload); v != nil {
			if encoded, err := proto.Marshal(v); err == nil {
				a.Kind, a.Payload = wire.JSONPayload, encoded
			}
		}
	}
}

// nodeName returns the name of the node that ran a command, as bytes. The writer
// caches the names.
func (st *stream) nodeName(node sharding.NodeID) []byte {
	if node == "" {
		return st.svc.nodeID
	}
	name := st.nodes[node]
	if name == nil {
		if name = []byte(node); len(st.nodes) < maxInterned {
			if st.nodes == nil {
				st.nodes = make(map[sharding.NodeID][]byte)
			}
			st.nodes[node] = name
		}
	}
	return name
}

// failure fills *a with the error err.
func (st *stream) failure(a *wire.Answer, correlation uint64, err error) {
	public := status.Public(st.svc.Log, err)
	st.svc.items.WithLabelValues(public.Code().String()).Inc()
	*a = wire.Answer{
		Correlation: correlation,
		Code:        []byte(public.Code().String()),
		Message:     []byte(public.Message()),
	}
	if detail := status.Detail(err); detail != nil {
		if packed, err := anypb.New(detail); err == nil {
			if encoded, err := proto.Marshal(packed); err == nil {
				a.Details = append(a.Details, encoded)
			}
		}
	}
}

// endInput lets the writer end once it has answered everything that was read.
func (st *stream) endInput() {
	st.mu.Lock()
	st.eof = true
	ended := st.inFlight == 0
	st.mu.Unlock()
	if ended {
		signal(st.wake)
	}
}

// close releases the items that the writer did not write.
func (st *stream) close() {
	st.mu.Lock()
	st.closed = true
	rest := st.done
	st.done, st.waiting = nil, batchList{}
	st.mu.Unlock()
	for _, it := range rest {
		it.batch.release(1)
	}
}

// signal puts a value into a one-slot channel, unless the slot is taken.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
