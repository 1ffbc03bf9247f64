package host

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/deliver"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// openDeliveries starts the pump of the sends of the shards that this node
// leads.
func (n *Node) openDeliveries(context.Context) error {
	p := deliver.Start(deliver.Options{
		Shards: ledShards{n}, Outboxes: n.machine, Router: n.router, Types: sendTypes{n}, Stop: eventlog.ErrStopReading, Logger: n.logger,
	})
	n.pump.Store(p)
	n.closeLast("deliveries", p.Close)
	n.watchSends(p)
	return nil
}

// sent tells the pump, once there is one, of new sends.
func (n *Node) sent(shard sharding.ShardID) {
	if p := n.pump.Load(); p != nil {
		p.Sent(shard)
	}
}

// ledShards implements deliver.Shards.
type ledShards struct{ n *Node }

func (s ledShards) Led() (led []deliver.Lead) {
	for id, l := range s.n.region.Leads() {
		if l.Serving && sharding.ShardID(id) != sharding.MetaShard {
			led = append(led, deliver.Lead{Shard: sharding.ShardID(id), Term: l.Term})
		}
	}
	return led
}

func (s ledShards) Changed() <-chan struct{} { return s.n.region.LeadsChanged() }

func (s ledShards) Post(shard sharding.ShardID, q *entity.Request) { s.n.region.Post(shard, q) }

// sendTypes implements deliver.Types.
type sendTypes struct{ n *Node }

func (s sendTypes) Served(entityType string) bool { return s.n.bindings.served(entityType) != nil }

func (s sendTypes) Unknown(entityType string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*confirmTime)
	defer cancel()
	_, err := (typeService{s.n}).Lookup(ctx, entityType)
	return errors.Is(err, entity.ErrUnknownType)
}

// watchSends registers what the node knows of sends.
func (n *Node) watchSends(p *deliver.Pump) {
	count := func(name, help string, pick func(deliver.Stats) uint64) {
		n.metrics.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(pick(p.Stats())) }))
	}
	count("hostd_send_deliveries_total", "Sends that arrived.", func(s deliver.Stats) uint64 { return s.Delivered })
	count("hostd_send_retries_total", "Attempts to deliver a send that failed.", func(s deliver.Stats) uint64 { return s.Retries })
	count("hostd_sends_given_up_total", "Sends to entity types that do not exist.", func(s deliver.Stats) uint64 { return s.GivenUp })
	gauge := func(name, help string, fn func(shard sharding.ShardID) float64) {
		n.metrics.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() (sum float64) {
			for _, l := range (ledShards{n}).Led() {
				sum += fn(l.Shard)
			}
			return sum
		}))
	}
	gauge("hostd_outbox_sends", "Sends on their way, of the shards that the node leads.", func(s sharding.ShardID) float64 {
		return float64(n.machine.SendTotals(s).Sends)
	})
	gauge("hostd_outbox_bytes", "Bytes of these.", func(s sharding.ShardID) float64 { return float64(n.machine.SendTotals(s).SendBytes) })
	gauge("hostd_dead_letters", "Dead letters of the shards that the node leads.", func(s sharding.ShardID) float64 {
		return float64(n.machine.SendTotals(s).Letters)
	})
	n.metrics.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hostd_outbox_oldest_seconds", Help: "Age of the oldest send on its way, of the shards that the node leads.",
	}, n.oldestSend))
}

func (n *Node) oldestSend() (age float64) {
	for _, l := range (ledShards{n}).Led() {
		if n.machine.SendTotals(l.Shard).Sends == 0 {
			continue
		}
		// A shard that cannot be read now says nothing.
		_ = n.machine.Outbox(context.Background(), l.Shard, journal.ItemID{}, func(s *journal.Send) error {
			age = max(age, time.Since(time.Unix(0, s.At)).Seconds())
			return eventlog.ErrStopReading
		})
	}
	return age
}
