package forward

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

const (
	// maxMessageItems and maxMessageBytes bound a message; a larger item is a
	// message of its own.
	maxMessageItems = 1024
	maxMessageBytes = 256 << 10
)

// link carries requests to a node over one stream, which it opens when there is
// something to send. Its run goroutine sends; a second goroutine receives
// while there is a stream.
type link struct {
	client *Client
	to     sharding.NodeID
	name   string
	wake   chan struct{} // one slot: there is something to send

	mu          sync.Mutex
	queue       []*request.Request // requests that are not sent yet
	slots       []slot             // sent but not answered, indexed by the low half of the correlation
	free        []uint32
	count       int // requests in queue and slots
	bytes       int
	lost        map[sharding.ShardID]uint64 // highest round of which a request was lost
	suspected   bool                        // the node is suspected: no attempt
	down        time.Time                   // no attempt before this time
	pause       time.Duration
	breakStream context.CancelFunc // ends the stream; nil if there is none
	closed      bool
}

// slot holds a request that was sent. The generation distinguishes its answer
// from the answer to an earlier request in the same slot.
type slot struct {
	req        *request.Request
	generation uint32
}

func newLink(c *Client, to sharding.NodeID, index int) *link {
	return &link{
		client: c, to: to, name: fmt.Sprintf("%s/%d", c.opts.Self, index),
		wake: make(chan struct{}, 1), lost: make(map[sharding.ShardID]uint64),
	}
}

// put queues requests or fails them.
func (l *link) put(reqs []*request.Request) {
	var failed [8]*request.Request
	unreachable, busy := failed[:0], []*request.Request(nil)
	o := &l.client.opts
	l.mu.Lock()
	first := len(l.queue) == 0
	isDown := l.closed || l.suspected || !l.down.IsZero() && o.Clock().Before(l.down)
	for _, q := range reqs {
		cost := requestSize(q)
		switch {
		case isDown || q.Route.Round > 0 && q.Route.Round <= l.lost[q.Shard]:
			l.lose(q)
			unreachable = append(unreachable, q)
		case l.count >= o.StreamRequests || l.bytes+cost > o.StreamBytes:
			busy = append(busy, q)
		default:
			l.count++
			l.bytes += cost
			l.queue = append(l.queue, q)
		}
	}
	work := first && len(l.queue) > 0
	l.mu.Unlock()
	if work {
		signal(l.wake)
	}
	complete(unreachable, request.ErrUnreachable)
	complete(busy, request.ErrBusy)
}

// lose records that a request was lost. l.mu must be held.
func (l *link) lose(q *request.Request) {
	if q.Route.Round > l.lost[q.Shard] {
		l.lost[q.Shard] = q.Route.Round
	}
}

// take encodes queued requests, up to the size of a message. It also returns
// the requests that must not be sent any more, because their deadline has
// passed or the process was paused since the router took them.
func (l *link) take(dst []byte) (msg []byte, late []*request.Request) {
	now, epoch, say := l.client.opts.Clock(), l.client.opts.epoch(), l.client.opts.says()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for items := 0; n < len(l.queue) && items < maxMessageItems; n++ {
		q := l.queue[n]
		if !q.Deadline.IsZero() && q.Deadline.Before(now) || q.Route.Epoch != epoch {
			l.let(q)
			late = append(late, q)
			continue
		}
		if len(dst) > 0 && len(dst)+requestSize(q) > maxMessageBytes {
			break
		}
		items++
		dst = appendRequest(dst, l.occupy(q), q, now, say)
	}
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	return dst, late
}

// let stops counting a request against the bounds. l.mu must be held.
func (l *link) let(q *request.Request) {
	l.count--
	l.bytes -= requestSize(q)
}

// occupy puts a request into a slot and returns its correlation.
func (l *link) occupy(q *request.Request) uint64 {
	if len(l.free) == 0 {
		l.slots = append(l.slots, slot{})
		l.free = append(l.free, uint32(len(l.slots)-1))
	}
	at := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	s := &l.slots[at]
	s.generation++
	s.req = q
	return uint64(s.generation)<<32 | uint64(at)
}

// release returns the request of a correlation, or nil if there is no caller waiting for the
// answer. l.mu must be held.
func (l *link) release(correlation uint64) *request.Request {
	at, generation := uint32(correlation), uint32(correlation>>32)
	if int(at) >= len(l.slots) || l.slots[at].generation != generation || l.slots[at].req == nil {
		return nil
	}
	q := l.slots[at].req
	l.slots[at].req = nil
	l.free = append(l.free, at)
	l.let(q)
	return q
}

// completeAnswered completes the requests of a message. Their results may alias the
// message.
func (l *link) completeAnswered(msg []byte, done []*request.Request) ([]*request.Request, error) {
	done = done[:0]
	var a wireResult
	l.mu.Lock()
	err := items(msg, func(item []byte) error {
		if err := a.parse(item); err != nil {
			return err
		}
		res, err := a.result()
		if err != nil {
			return err
		}
		if q := l.release(a.correlation); q != nil {
			q.Result = res
			done = append(done, q)
		}
		return nil
	})
	l.pause = 0
	l.mu.Unlock()
	for _, q := range done {
		q.Done.Complete(q)
	}
	clear(done)
	return done, err
}

// broke fails all requests because of err. Requests that were sent may have
// run. No new stream is tried for a while.
func (l *link) broke(err error, closed bool) {
	o := &l.client.opts
	l.mu.Lock()
	l.closed = closed
	l.pause = min(max(2*l.pause, o.MinPause), o.MaxPause)
	l.down = o.Clock().Add(l.pause)
	queued := l.queue
	l.queue = nil
	var sent []*request.Request
	for i := range l.slots {
		if q := l.slots[i].req; q != nil {
			l.slots[i].req = nil
			l.free = append(l.free, uint32(i))
			sent = append(sent, q)
		}
	}
	for _, list := range [2][]*request.Request{sent, queued} {
		for _, q := range list {
			l.lose(q)
			l.let(q)
		}
	}
	l.mu.Unlock()
	if endedThere(err) {
		complete(sent, request.ErrOutcomeUnknown)
	} else {
		complete(sent, request.ErrMayStillApply)
	}
	complete(queued, request.ErrUnreachable)
}

// sever breaks the stream and prevents new streams until revive.
func (l *link) sever() {
	l.mu.Lock()
	l.suspected = true
	cut := l.breakStream
	l.mu.Unlock()
	if cut != nil {
		cut()
	}
}

// revive allows the next request to open a stream.
func (l *link) revive() {
	l.mu.Lock()
	l.suspected, l.down, l.pause = false, time.Time{}, 0
	l.mu.Unlock()
}

// signal puts a value into a one-slot channel unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
