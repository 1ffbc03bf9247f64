package host

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/deliver"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// deliveries gives the outbox dispatcher the shards that this node leads, and
// counts the messages in their outboxes.
type deliveries struct {
	machine     *eventlog.Machine
	shardRouter *entity.ShardRouter
	dispatcher  atomic.Pointer[deliver.Dispatcher]
	outbox      outboxTotals
}

// openDeliveries starts the outbox dispatcher.
func (n *Node) openDeliveries(context.Context) error {
	p := deliver.Start(deliver.Options{
		Shards: &n.deliveries, Outboxes: n.replicas.machine, Router: n.routing.router, Types: sendTypes{n.guests.modules}, Stop: eventlog.ErrStopReading, Logger: n.logger,
	})
	n.deliveries.dispatcher.Store(p)
	n.lifecycle.add("deliveries", p.Close)
	n.deliveries.register(n.metrics.registry, p)
	return nil
}

// NotifySent notifies the dispatcher of new messages of a shard. It does nothing
// before openDeliveries.
func (d *deliveries) NotifySent(shard sharding.ShardID) {
	if p := d.dispatcher.Load(); p != nil {
		p.NotifySent(shard)
	}
}

// Leads implements deliver.Shards.
func (d *deliveries) Leads() (led []deliver.Lead) {
	for id, l := range d.shardRouter.Leads() {
		if l.Serving && sharding.ShardID(id) != sharding.MetaShard {
			led = append(led, deliver.Lead{Shard: sharding.ShardID(id), Term: l.Term})
		}
	}
	return led
}

// Lead returns the term in which this node leads a shard, and whether it
// serves the shard.
func (d *deliveries) Lead(shard sharding.ShardID) (term sharding.Term, serves bool) {
	lead := d.shardRouter.Lead(shard)
	return lead.Term, lead.Serving
}

// LeadsChanged implements deliver.Shards.
func (d *deliveries) LeadsChanged() <-chan struct{} { return d.shardRouter.LeadsChanged() }

// Propose implements deliver.Shards.
func (d *deliveries) Propose(shard sharding.ShardID, q *request.Request) {
	d.shardRouter.Propose(shard, q)
}

// sendTypes implements deliver.Types.
type sendTypes struct{ modules *modules.Modules }

func (s sendTypes) IsServed(entityType string) bool {
	return s.modules.Types.ServedType(entityType) != nil
}

func (s sendTypes) IsUnknown(entityType string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*cluster.ConfirmTime)
	defer cancel()
	_, err := s.modules.Service.Lookup(ctx, entityType)
	return errors.Is(err, request.ErrUnknownType)
}

// outboxAge is the maximum age of the cached totals of the node's outboxes.
const outboxAge = 50 * time.Millisecond

// outboxTotals caches the number and size of the messages in the outboxes of
// the node's shards. Executors ask for them at each command that sends, and
// counting every time would be too slow.
type outboxTotals struct {
	mu           sync.Mutex
	at           time.Time
	sends, bytes int
}

// Totals returns the number and size of the messages of the shards that this
// node leads. They may be outdated by up to outboxAge.
func (d *deliveries) Totals() (sends, bytes int) {
	o := &d.outbox
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); now.Sub(o.at) > outboxAge {
		o.at = now
		o.sends, o.bytes = d.count()
	}
	return o.sends, o.bytes
}

// HasStuckOutcomes reports whether a shard must not execute messages of the sender
// that want an outcome now. It returns false before openDeliveries.
func (d *deliveries) HasStuckOutcomes(shard sharding.ShardID, sender sharding.EntityID) bool {
	p := d.dispatcher.Load()
	return p != nil && p.HasStuckOutcomes(shard, sender)
}

// count counts the messages of the shards that the node leads.
func (d *deliveries) count() (sends, bytes int) {
	for _, l := range d.Leads() {
		t := d.machine.MessageTotals(l.Shard)
		sends, bytes = sends+int(t.Messages), bytes+int(t.MessageBytes)
	}
	return sends, bytes
}

// register registers the metrics about sends.
func (d *deliveries) register(registry *prometheus.Registry, p *deliver.Dispatcher) {
	count := func(name, help string, pick func(deliver.Stats) uint64) {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(pick(p.Stats())) }))
	}
	count("hostd_message_deliveries_total", "Messages delivered.", func(s deliver.Stats) uint64 { return s.Delivered })
	count("hostd_message_retries_total", "Failed attempts to deliver a message.", func(s deliver.Stats) uint64 { return s.Retries })
	count("hostd_messages_given_up_total", "Messages to entity types that do not exist.", func(s deliver.Stats) uint64 { return s.GivenUp })
	gauge := func(name, help string, fn func(shard sharding.ShardID) float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() (sum float64) {
			for _, l := range d.Leads() {
				sum += fn(l.Shard)
			}
			return sum
		}))
	}
	gauge("hostd_outbox_messages", "Undelivered messages of the shards that the node leads.", func(s sharding.ShardID) float64 {
		return float64(d.machine.MessageTotals(s).Messages)
	})
	gauge("hostd_outbox_bytes", "Size of the undelivered messages of the shards that the node leads.", func(s sharding.ShardID) float64 { return float64(d.machine.MessageTotals(s).MessageBytes) })
	gauge("hostd_dead_letters", "Dead letters of the shards that the node leads.", func(s sharding.ShardID) float64 {
		return float64(d.machine.MessageTotals(s).DeadLetters)
	})
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hostd_message_channels_waiting", Help: "Channels whose first message has failed for at least a second, of the shards that the node leads. Other channels do not wait for them.",
	}, func() float64 { return float64(p.Stats().Waiting) }))
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hostd_message_channels_stuck", Help: "Channels whose first message is an outcome for an entity that is quarantined or suspended, of the shards that the node leads. Messages of that entity that want an outcome are not executed meanwhile.",
	}, func() float64 { return float64(p.Stats().Stuck) }))
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hostd_outbox_oldest_seconds", Help: "Age of the oldest undelivered message of the shards that the node leads.",
	}, d.oldest))
}

func (d *deliveries) oldest() (age float64) {
	for _, l := range d.Leads() {
		if d.machine.MessageTotals(l.Shard).Messages == 0 {
			continue
		}
		// A shard that cannot be read right now is skipped.
		_ = d.machine.Outbox(context.Background(), l.Shard, journal.ItemID{}, func(s *journal.Message) error {
			age = max(age, time.Since(time.Unix(0, s.At)).Seconds())
			return eventlog.ErrStopReading
		})
	}
	return age
}
