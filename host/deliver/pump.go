package deliver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Lead is a shard that this node leads and serves, and since which term.
type Lead struct {
	Shard sharding.ShardID
	Term  sharding.Term
}

// Shards is what the pump knows of shards. No method blocks.
type Shards interface {
	// Led are the shards that this node leads and serves now.
	Led() []Lead
	// Changed returns a channel that is closed at the next change of Led. Take
	// it before looking.
	Changed() <-chan struct{}
	// Propose takes a request about a shard's messages to the shard's lane.
	Propose(sharding.ShardID, *request.Request)
}

// Outboxes reads what is applied of messages.
type Outboxes interface {
	// Outbox calls fn for the messages of a shard that were made after one, in
	// order. The message is lent. An error of fn ends it and is returned, but for
	// Stop.
	Outbox(ctx context.Context, shard sharding.ShardID, after journal.ItemID, fn func(*journal.Message) error) error
	// Message returns one message of a shard, nil if it is not there any more.
	Message(shard sharding.ShardID, id journal.ItemID) (*journal.Message, error)
	// PairCount is what is counted for a pair of entities.
	PairCount(shard sharding.ShardID, source, to sharding.EntityID) (journal.PairCount, error)
}

// Router takes requests to where their entities are. Submit does not block and
// completes each exactly once.
type Router interface {
	Submit([]*request.Request)
}

// Types says which entity types there are.
type Types interface {
	// Served reports that this node serves a type; it does not block.
	Served(entityType string) bool
	// Unknown reports that a type does not exist, as the cluster knows it now. It
	// may take its time; false says nothing.
	Unknown(entityType string) bool
}

// Options of a Pump. The zero value of a bound means its default.
type Options struct {
	Shards   Shards
	Outboxes Outboxes
	Router   Router
	Types    Types
	// Stop ends a reading of an outbox.
	Stop   error
	Logger *slog.Logger
	Clock  func() time.Time // time.Now when nil

	PairWindow int           // messages of a pair in flight, default 64
	ShardHeld  int           // messages of a shard in memory, default 2,048; half as many again that are retried
	HeldBytes  int           // and their bytes, default 4 MiB; the same
	Pairs      int           // pairs of a shard that are known in memory, default 16,384
	InFlight   int           // messages of the node in flight, default 4,096
	Attempts   int           // guest faults after which a message is refused, default 5
	MinWait    time.Duration // before a message that failed goes out again, default 20 ms; it doubles
	MaxWait    time.Duration // up to this, default 5 s
	FaultWait  time.Duration // after a guest's fault, default 1 s; it doubles up to 5 min
	Deadline   time.Duration // of one attempt, default 10 s
}

func (o Options) withDefaults() Options {
	number := func(v *int, standard int) {
		if *v == 0 {
			*v = standard
		}
	}
	duration := func(v *time.Duration, standard time.Duration) {
		if *v == 0 {
			*v = standard
		}
	}
	number(&o.PairWindow, 64)
	number(&o.ShardHeld, 2048)
	number(&o.HeldBytes, 4<<20)
	number(&o.Pairs, 16384)
	number(&o.InFlight, 4096)
	number(&o.Attempts, 5)
	duration(&o.MinWait, 20*time.Millisecond)
	duration(&o.MaxWait, 5*time.Second)
	duration(&o.FaultWait, time.Second)
	duration(&o.Deadline, 10*time.Second)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Stats counts what a pump has done since it started.
type Stats struct {
	Delivered uint64 // messages that arrived
	Retries   uint64 // attempts that failed
	Faulted   uint64 // messages that are refused, for their destination failed
	GivenUp   uint64 // messages to types that do not exist
	Waiting   uint64 // pairs whose first message has failed for a second or more, now
}

// Pump delivers the messages of the shards that its node leads. It is safe for
// concurrent use.
type Pump struct {
	core core
	wake chan struct{}
	stop chan struct{}
	done chan struct{}
	ends context.Context
	end  context.CancelFunc
	asks sync.WaitGroup

	mu     sync.Mutex
	closed bool
	news   []news
}

// news is an input of the core.
type news struct {
	shard  sharding.ShardID // that made messages
	flight *flight          // that has an outcome
	acks   *acks            // the same
	asked  *asked           // an answer
}

// Start begins to deliver.
func Start(opts Options) *Pump {
	p := &Pump{wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	p.ends, p.end = context.WithCancel(context.Background())
	p.core = newCore(opts.withDefaults(), p)
	go p.run()
	return p
}

// Sent is told that a shard has new messages. It does not block.
func (p *Pump) Sent(shard sharding.ShardID) { p.put(news{shard: shard}) }

// Stats returns the counters.
func (p *Pump) Stats() Stats { return p.core.counts.stats() }

func (n *counts) stats() Stats {
	return Stats{n.delivered.Load(), n.retries.Load(), n.faulted.Load(), n.givenUp.Load(), n.waiting.Load()}
}

// Close ends the pump. What is in flight may still arrive.
func (p *Pump) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.stop)
		p.end()
	}
	p.mu.Unlock()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Pump) put(n news) {
	p.mu.Lock()
	if !p.closed {
		p.news = append(p.news, n)
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Pump) run() {
	defer close(p.done)
	defer p.asks.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	c := &p.core
	for {
		changed := c.opts.Shards.Changed()
		c.now = c.opts.Clock()
		c.lead(c.opts.Shards.Led())
		c.step()
		for again := false; !again; {
			var due <-chan time.Time
			if at := c.wakeAt(); !at.IsZero() {
				timer.Reset(max(at.Sub(c.opts.Clock()), time.Millisecond))
				due = timer.C
			}
			select {
			case <-p.stop:
				return
			case <-changed:
				again = true
			case <-due:
			case <-p.wake:
			}
			p.mu.Lock()
			got := p.news
			p.news = nil
			p.mu.Unlock()
			c.now = c.opts.Clock()
			for i := range got {
				c.take(&got[i])
			}
			c.step()
		}
	}
}

// confirm asks whether a type exists, on a goroutine of its own: only one at a
// time.
func (p *Pump) confirm(a *asked) {
	p.asks.Go(func() {
		a.unknown = p.core.opts.Types.Unknown(a.name)
		p.put(news{asked: a})
	})
}
