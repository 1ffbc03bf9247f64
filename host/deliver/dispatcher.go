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

// Lead is a shard that this node leads and serves, with the term.
type Lead struct {
	Shard sharding.ShardID
	Term  sharding.Term
}

// Shards gives the dispatcher access to the shards. No method blocks.
type Shards interface {
	// Leads returns the shards that this node leads and serves.
	Leads() []Lead
	// LeadsChanged returns a channel that is closed at the next change of
	// Leads. Call it before Leads, so that no change is missed.
	LeadsChanged() <-chan struct{}
	// Propose hands a request about a shard's messages to the shard's executor.
	Propose(sharding.ShardID, *request.Request)
}

// Outboxes reads the applied state of the outboxes.
type Outboxes interface {
	// Outbox calls fn for the messages of a shard after the given id, in order.
	// The message is valid only during the call. If fn returns an error, Outbox
	// stops; it returns that error unless it is Options.Stop.
	Outbox(ctx context.Context, shard sharding.ShardID, after journal.ItemID, fn func(*journal.Message) error) error
	// Message returns one message of a shard, or nil if it is no longer there.
	Message(shard sharding.ShardID, id journal.ItemID) (*journal.Message, error)
	// ChannelCounters returns the message count of a channel.
	ChannelCounters(shard sharding.ShardID, source, to sharding.EntityID) (journal.ChannelCounters, error)
}

// Router routes requests to the nodes of their entities. Submit does not block
// and completes each request exactly once.
type Router interface {
	Submit([]*request.Request)
}

// Types knows which entity types exist.
type Types interface {
	// IsServed reports whether this node serves a type. It does not block.
	IsServed(entityType string) bool
	// IsUnknown reports whether the cluster knows that a type does not exist. It
	// may block. False means that the type exists or that no node could be
	// asked.
	IsUnknown(entityType string) bool
}

// Options configures a Dispatcher. If a bound is zero, its default is used.
type Options struct {
	Shards   Shards
	Outboxes Outboxes
	Router   Router
	Types    Types
	// Stop is the error that ends a read of an outbox early.
	Stop   error
	Logger *slog.Logger
	Clock  func() time.Time // nil means time.Now

	ChannelWindow int // messages of a channel in flight, default 64
	ShardHeld     int // messages of a shard in memory, default 2,048; retried messages may add half as many
	HeldBytes     int // bytes of those messages, default 4 MiB; retried messages may add half as many
	Channels      int // channels of a shard that are tracked in memory, default 16,384
	// TypeOutcomes limits, for each shard and entity type, the channels whose
	// first message is an outcome that an entity of the type does not accept;
	// TypeOutcomeBytes limits the size of these messages. The defaults are 4,096
	// and 16 MiB. See Dispatcher.HasStuckOutcomes.
	TypeOutcomes     int
	TypeOutcomeBytes int
	InFlight         int           // messages of the node in flight, default 4,096
	Attempts         int           // guest faults after which a message is rejected, default 5
	MinWait          time.Duration // first back-off after a failure, default 20 ms; it doubles
	MaxWait          time.Duration // maximum back-off, default 5 s
	FaultWait        time.Duration // first back-off after a guest fault, default 1 s; it doubles up to 5 min
	Deadline         time.Duration // timeout of one attempt, default 10 s
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
	number(&o.ChannelWindow, 64)
	number(&o.ShardHeld, 2048)
	number(&o.HeldBytes, 4<<20)
	number(&o.Channels, 16384)
	number(&o.TypeOutcomes, 4096)
	number(&o.TypeOutcomeBytes, 16<<20)
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

// Stats counts what a dispatcher has done since it started.
type Stats struct {
	Delivered uint64 // messages that arrived
	Retries   uint64 // attempts that failed
	Faulted   uint64 // messages rejected after too many guest faults
	GivenUp   uint64 // messages given up because the destination's type does not exist
	Waiting   uint64 // number of channels whose first message has been failing for a second or more
	Stuck     uint64 // number of channels whose first message is an outcome that its destination does not accept
}

// Dispatcher delivers the messages of the shards that its node leads. It is safe for
// concurrent use.
type Dispatcher struct {
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

// news is an input of the core. One field is set.
type news struct {
	shard  sharding.ShardID // a shard that has new messages
	flight *flight          // a flight that ended
	acks   *acks            // a proposal of acknowledgements that ended
	asked  *typeLookup      // a type lookup that has ended
}

// Start starts a dispatcher.
func Start(opts Options) *Dispatcher {
	p := &Dispatcher{wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	p.ends, p.end = context.WithCancel(context.Background())
	p.core = newCore(opts.withDefaults(), p)
	go p.run()
	return p
}

// NotifySent notifies the dispatcher that a shard has new messages. It does not
// block.
func (p *Dispatcher) NotifySent(shard sharding.ShardID) { p.put(news{shard: shard}) }

// HasStuckOutcomes reports whether, at present, a shard must not execute
// messages of the sender that want an outcome. That is so if an outcome for
// the sender has failed and waits in the shard's outbox, or if outcomes for
// too many entities of the sender's type wait there. It does not block.
func (p *Dispatcher) HasStuckOutcomes(shard sharding.ShardID, sender sharding.EntityID) bool {
	return p.core.stuck.isStuck(&p.core.opts, shard, sender)
}

// Stats returns the counters.
func (p *Dispatcher) Stats() Stats { return p.core.stats() }

func (c *core) stats() Stats {
	n := c.counts
	return Stats{n.delivered.Load(), n.retries.Load(), n.faulted.Load(), n.givenUp.Load(), n.waiting.Load(), uint64(max(0, c.stuck.channels.Load()))}
}

// Close stops the dispatcher. Messages in flight may still arrive.
func (p *Dispatcher) Close(ctx context.Context) error {
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

func (p *Dispatcher) put(n news) {
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

func (p *Dispatcher) run() {
	defer close(p.done)
	defer p.asks.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	c := &p.core
	for {
		changed := c.opts.Shards.LeadsChanged()
		c.now = c.opts.Clock()
		c.lead(c.opts.Shards.Leads())
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

// confirm asks on its own goroutine whether a type exists. The core has at
// most one lookup in progress.
func (p *Dispatcher) confirm(a *typeLookup) {
	p.asks.Go(func() {
		a.unknown = p.core.opts.Types.IsUnknown(a.name)
		p.put(news{asked: a})
	})
}
