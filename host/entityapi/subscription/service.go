package subscription

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/telemetry"

	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Options configure a service. All fields are required except Readers and
// Registerer.
type Options struct {
	Types     Types
	Sharding  Sharding
	Histories Histories
	Proxy     *leaderproxy.Proxy
	Streams   *admission.Streams
	Readers
	Log *slog.Logger
	// Registerer registers the metrics; nil drops them.
	Registerer prometheus.Registerer
}

// Types finds how the payloads of an entity type are encoded.
type Types interface {
	Encoding(ctx context.Context, entityType string) (request.Encoding, error)
}

// Sharding finds the shards of entities.
type Sharding interface {
	// Shards is the number of data shards; they are numbered from 1.
	Shards() uint32
	// ShardOf returns the shard of an entity.
	ShardOf(id sharding.EntityID) sharding.ShardID
}

// Histories reads the histories of entities.
type Histories interface {
	// Read calls fn for the entity's records in order, from the record that
	// contains the event with sequence from. The record is valid only during fn.
	// An error of fn stops Read and is returned unchanged.
	Read(ctx context.Context, id sharding.EntityID, from journal.Sequence, fn func(*journal.Record) error) error
	// Watch returns a channel that receives a value, without blocking the sender
	// and at most one at a time, after records of the entity have become
	// readable. It may receive more values than there are records. stop ends the
	// watch and must be called once.
	Watch(id sharding.EntityID) (changed <-chan struct{}, stop func())
}

// Service streams events. It is safe for concurrent use.
type Service struct {
	Options
	metrics metrics
}

// metrics counts the events sent to subscribers, except other nodes.
type metrics struct {
	subscribers prometheus.Gauge
	lag         *telemetry.HistogramVec
	delivered   prometheus.Counter
}

// New makes a service.
func New(o Options) *Service {
	m := metrics{
		subscribers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hostd_rpc_subscribers", Help: "Open subscriptions, except those of other nodes.",
		}),
		lag: telemetry.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hostd_rpc_subscription_lag_seconds", Help: "Delay between the execution of a command and the delivery of its events to subscribers.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 8, 12), // up to 2.4 hours
		}, nil),
		delivered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hostd_rpc_subscription_events_total", Help: "Events sent to subscribers, except other nodes.",
		}),
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(m.subscribers, m.lag, m.delivered)
	}
	return &Service{o, m}
}
