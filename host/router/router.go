package router

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// pauses counts the pauses of the process.
type pauses interface{ Epoch() uint64 }

// neverPaused is a process without pauses.
type neverPaused struct{}

func (neverPaused) Epoch() uint64 { return 0 }

// Options configures a Router. If a bound is zero, its default is used.
type Options struct {
	Self   sharding.NodeID
	Shards uint32          // data shards of the cluster, at least 1
	Locate sharding.Locate // nil hashes the entity's type and id

	Local   Local
	Remote  Remote // nil if there is no other node
	Leaders Leaders
	Clock   func() time.Time // nil means time.Now
	// Pauses counts the pauses of the process. A request that arrived before a
	// pause and is still here after it is not sent any more. If nil, there are
	// no pauses.
	Pauses pauses

	// HeldRequests and HeldBytes limit the requests that one shard holds while
	// its leader is unknown (default 4,096 and 4 MiB). HeldTotalBytes limits
	// the bytes of the held requests of all shards together (64 MiB).
	// Requests beyond a limit fail with request.ErrBusy.
	HeldRequests, HeldBytes, HeldTotalBytes int
	// MinPause and MaxPause bound the back-off before a request is resent to a
	// node that did not serve it. The back-off doubles with each attempt,
	// from MinPause to MaxPause (default 1 ms, 50 ms).
	MinPause, MaxPause time.Duration
	// Patience is how long a request that certainly did not run waits for a
	// leader (default request.LeaderPatience). If an election has not ended by
	// then, there is probably no majority. The request fails with a
	// *sharding.NotLeaderError.
	Patience time.Duration
}

const (
	// batchRequests is the number of held requests dispatched at a time when a
	// shard's leader becomes known.
	batchRequests = 256
	// refreshEvery is how often the router asks for leaders if it was not
	// notified of a change.
	refreshEvery = time.Second
)

// Router implements the server's runtime for the whole cluster. It is safe for
// concurrent use.
type Router struct {
	opts   Options
	self   target
	limits limits
	slots  []shardSlot // by shard
	splits sync.Pool
	batch  []*request.Request // used only by the loop

	wake chan struct{}
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	ready  []*shardSlot // slots that the loop must look at
	closed bool
}

// shardSlot is a route with its lock. The lock is never held during a call to
// another component.
type shardSlot struct {
	mu     sync.Mutex
	route  shardRoute
	queued bool // the slot is in Router.ready; guarded by Router.mu
}

// New starts a router.
func New(opts Options) (*Router, error) {
	if opts.Shards < 1 || opts.Local == nil || opts.Leaders == nil {
		return nil, errors.New("router: shards, the shard router and the leaders must be set")
	}
	number := func(v *int, standard int) {
		if *v == 0 {
			*v = standard
		}
	}
	number(&opts.HeldRequests, 4096)
	number(&opts.HeldBytes, 4<<20)
	number(&opts.HeldTotalBytes, 64<<20)
	if opts.MinPause == 0 {
		opts.MinPause = time.Millisecond
	}
	if opts.MaxPause == 0 {
		opts.MaxPause = 50 * time.Millisecond
	}
	if opts.Patience == 0 {
		opts.Patience = request.LeaderPatience
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Pauses == nil {
		opts.Pauses = neverPaused{}
	}
	if opts.Remote == nil {
		opts.Remote = nowhere{}
	}
	opts.Locate = opts.Locate.OrDefault(opts.Shards)
	r := &Router{
		opts: opts,
		self: target{node: opts.Self, self: true},
		limits: limits{
			requests: opts.HeldRequests, bytes: opts.HeldBytes, total: &budget{limit: int64(opts.HeldTotalBytes)},
			minPause: opts.MinPause, maxPause: opts.MaxPause, patience: opts.Patience, self: opts.Self, seed: maphash.MakeSeed(),
		},
		slots: make([]shardSlot, opts.Shards+1),
		wake:  make(chan struct{}, 1),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	for i := range r.slots {
		r.slots[i].route = newShardRoute(sharding.ShardID(i), &r.limits)
	}
	r.refresh()
	go r.run()
	return r, nil
}

// Submit accepts requests in order. Each is completed exactly once, possibly
// before Submit returns. Submit never blocks and keeps no reference to the
// slice. Requests of one caller to one entity run in the order submitted.
func (r *Router) Submit(reqs []*request.Request) {
	var to target
	r.limits.look(r.opts.Pauses.Epoch())
	for i, q := range reqs {
		where, v := r.admit(q)
		if v == send && i == 0 {
			to = where
		} else if v != send || where != to {
			r.split(reqs, i, to, where, v)
			return
		}
	}
	r.dispatch(to, reqs)
}

// admit admits one request. If the decision is send, the caller dispatches it.
func (r *Router) admit(q *request.Request) (target, decision) {
	if q.Kind == request.Inspect {
		return r.self, send
	}
	var known bool
	q.Shard, known = r.opts.Locate(q.Entity)
	q.Route = request.Route{Done: q.Done, Ordered: q.Route.Ordered}
	if !known {
		q.Result = request.Result{Err: request.ErrNotServed}
		finish(q)
		return target{}, answer
	}
	s := &r.slots[q.Shard]
	s.mu.Lock()
	v := s.route.admit(q)
	to, pending := s.route.to, false
	if v != answer {
		q.Done = r
		pending = v == hold && s.route.pending()
	}
	s.mu.Unlock()
	if v == answer {
		finish(q)
	}
	if pending {
		r.look(s)
	}
	return to, v
}

// dispatch hands requests to a node. The router does not touch them again until
// they come back through Complete.
func (r *Router) dispatch(to target, reqs []*request.Request) {
	switch {
	case len(reqs) == 0:
	case to.self:
		r.opts.Local.Submit(reqs)
	default:
		r.opts.Remote.Submit(to.node, reqs)
	}
}

// Complete receives the outcome of a dispatched request. Executors call it; it
// does not block.
func (r *Router) Complete(q *request.Request) {
	var now time.Time
	if q.Result.Err != nil {
		now = r.opts.Clock()
		r.limits.look(r.opts.Pauses.Epoch())
	} else if q.Result.Node == "" {
		q.Result.Node = q.Route.Node
	}
	s := &r.slots[q.Shard]
	s.mu.Lock()
	v := s.route.complete(q, now)
	answers := s.route.takeAnswers()
	pending := s.route.pending()
	s.mu.Unlock()
	if v == answer {
		finish(q)
	}
	finishAll(answers)
	if pending {
		r.look(s)
	}
}

// finish returns a request to its caller.
func finish(q *request.Request) {
	if q.Route.Done != nil {
		q.Done = q.Route.Done
	}
	q.Route = request.Route{}
	q.Done.Complete(q)
}

func finishAll(qs []*request.Request) {
	for _, q := range qs {
		finish(q)
	}
}

// look makes the loop look at a shard.
func (r *Router) look(s *shardSlot) {
	r.mu.Lock()
	if !s.queued {
		s.queued = true
		r.ready = append(r.ready, s)
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Close fails the held requests and joins the router's goroutine. Requests that
// were dispatched are completed by the nodes that have them.
func (r *Router) Close(ctx context.Context) error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.stop)
	}
	r.mu.Unlock()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nowhere is the Remote of a node that has no other nodes.
type nowhere struct{}

func (nowhere) Submit(_ sharding.NodeID, reqs []*request.Request) {
	for _, q := range reqs {
		q.Result = request.Result{Err: request.ErrUnreachable}
		q.Done.Complete(q)
	}
}
