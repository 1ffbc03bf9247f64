package host

import (
	"time"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the node's own measurements and the registry for all metrics.
type metrics struct {
	sync     *telemetry.Histogram
	late     *telemetry.Histogram // lateness of timers
	commands *entity.StageTable
	registry *prometheus.Registry
}

func newMetrics(r *prometheus.Registry) *metrics {
	sync := telemetry.NewHistogramVec(prometheus.HistogramOpts{
		Name: "hostd_wal_sync_seconds", Help: "Duration of syncs of the write-ahead log.", Buckets: telemetry.LatencyBuckets(),
	}, nil)
	late := telemetry.NewHistogramVec(prometheus.HistogramOpts{
		Name: "hostd_timer_lateness_seconds", Help: "Delay between the due time of a timer and its execution.",
		Buckets: []float64{1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1, 2, 5, 10, 30, 60, 600, 3600},
	}, nil)
	m := &metrics{registry: r, sync: sync.Alone(), late: late.Alone(), commands: entity.NewStageTable()}
	r.MustRegister(sync, late, m.commands)
	return m
}

func (m *metrics) TimerFired(late time.Duration) { m.late.Observe(late) }

func (m *metrics) observeSync(d time.Duration) { m.sync.Observe(d) }

// watch registers the metrics that read counters of the node's parts.
func (m *metrics) watch(n *Node) {
	count := func(name, help string, fn func() float64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, fn))
	}
	gauge := func(name, help string, fn func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, fn))
	}
	lane := func(pick func(s entity.Stats) uint64) func() float64 {
		return func() float64 {
			var sum uint64
			for _, s := range n.shardRouter.Stats() {
				sum += pick(s)
			}
			return float64(sum)
		}
	}
	count("hostd_commands_total", "Commands executed.", lane(func(s entity.Stats) uint64 { return s.Commands }))
	count("hostd_events_total", "Events written by commands.", lane(func(s entity.Stats) uint64 { return s.Events }))
	count("hostd_queries_total", "Queries executed by guests.", lane(func(s entity.Stats) uint64 { return s.Queries }))
	count("hostd_rate_limited_total", "Commands rejected by the rate limits of their entity type.", lane(func(s entity.Stats) uint64 { return s.RateLimited }))
	count("hostd_message_times_ignored_total", "Delivered messages whose time is more than a minute ahead of this node's clock.", lane(func(s entity.Stats) uint64 { return s.AheadOfUs }))
	count("hostd_retries_rejected_total", "Retried commands that are older than the idempotency window of their entity.", lane(func(s entity.Stats) uint64 { return s.Forgotten }))
	count("hostd_rejections_total", "Commands rejected by their module.", lane(func(s entity.Stats) uint64 { return s.Rejections }))
	count("hostd_duplicates_total", "Retried commands answered with the stored reply.", lane(func(s entity.Stats) uint64 { return s.Duplicates }))
	count("hostd_guest_faults_total", "Guest calls that trapped or violated the ABI.", lane(func(s entity.Stats) uint64 { return s.Faults }))
	count("hostd_executor_preemptions_total", "Guest calls that the executor was preempted from.", lane(func(s entity.Stats) uint64 { return s.Preemptions }))
	count("hostd_entity_loads_total", "Entities loaded by replaying their history.", lane(func(s entity.Stats) uint64 { return s.Loads }))
	count("hostd_proposals_total", "Proposed log entries; each has one or more commands.", lane(func(s entity.Stats) uint64 { return s.Proposals }))
	gauge("hostd_entities_resident", "Entities in the executors.", lane(func(s entity.Stats) uint64 { return uint64(s.Entities) }))
	gauge("hostd_entities_hibernated", "Hibernated entities, whose records are outside of the Go heap.", lane(func(s entity.Stats) uint64 { return uint64(s.Hibernated) }))
	gauge("hostd_hibernated_bytes", "Memory of the records of hibernated entities.", lane(func(s entity.Stats) uint64 { return uint64(s.HibernatedBytes) }))
	gauge("hostd_idempotency_window_bytes", "Memory of the idempotency windows of resident entities.", lane(func(s entity.Stats) uint64 { return uint64(s.WindowBytes) }))
	gauge("hostd_guest_instances", "Open guest instances.", lane(func(s entity.Stats) uint64 { return uint64(s.Instances) }))
	gauge("hostd_guest_memory_bytes", "Linear memory of guest instances.", lane(func(s entity.Stats) uint64 { return uint64(s.GuestBytes) }))
	gauge("hostd_apply_backlog_bytes", "Size of applied rows that are not in the store yet.", func() float64 { return float64(n.replicas.applier.Backlog()) })
	gauge("hostd_disk_free_bytes", "Free space on the data directory's file system.", func() float64 { return float64(n.watches.disk.Free()) })
	gauge("hostd_disk_read_only", "1 while the node rejects writes because its disk is full.", func() float64 {
		if n.watches.disk.ReadOnly() {
			return 1
		}
		return 0
	})
	gauge("hostd_store_compaction_debt_bytes", "Compaction backlog of the store: new tables, and level sizes above their targets.", func() float64 { return float64(n.replicas.store.UnmergedBytes()) })
	count("hostd_scrub_bytes_total", "Bytes of the store's tables verified by the scrub.", func() float64 { return float64(n.replicas.store.ScrubStats().Bytes) })
	count("hostd_scrub_passes_total", "Complete passes of the scrub over the store's tables.", func() float64 { return float64(n.replicas.store.ScrubStats().Passes) })
	count("hostd_scrub_damage_total", "Times that the scrub found damage, which stops every replica of the node.", func() float64 { return float64(n.replicas.store.ScrubStats().Damaged) })
	gauge("hostd_disk_stalled_seconds", "Time that the current write or sync of the log has taken, in steps of a quarter second; 0 if it is shorter.", func() float64 { return n.watches.stalls.Disk().Seconds() })
	gauge("hostd_clock_skew_seconds", "Offset of the node's clock from the median of the other nodes' clocks; positive if it is ahead.", func() float64 { return n.watches.clock.Skew().Seconds() })
	gauge("hostd_peer_round_trip_seconds", "99th percentile of recent heartbeat round trips, to the node with the highest value.", func() float64 { return n.watches.clock.Trip().Seconds() })
	gauge("hostd_shards_led", "Shards that this node leads.", func() float64 {
		led := 0
		for _, l := range n.shardRouter.Leads() {
			if l.Serving {
				led++
			}
		}
		return float64(led)
	})
	gauge("hostd_shards_disputed", "Shards that reject requests because their replicas differ and no majority shows which are right.", func() float64 { return float64(n.replicas.consistency.Count()) })
	count("hostd_wal_syncs_total", "Syncs of the write-ahead log.", func() float64 { return float64(n.replicas.log.Stats().Syncs) })
	count("hostd_wal_bytes_total", "Bytes written to the write-ahead log.", func() float64 { return float64(n.replicas.log.Stats().WrittenBytes) })
}

// watchLeads registers metrics about the shards with a replica on this node.
func (m *metrics) watchLeads(n *Node) {
	for _, g := range []struct {
		name, help string
		lacks      func(entity.Lead) bool
	}{
		{"hostd_shards_without_leader", "Shards with a replica on this node that have no leader known to it.", func(l entity.Lead) bool { return l.Leader == 0 }},
		{"hostd_shards_without_quorum", "Shards with a replica on this node whose reachable voters are too few for a quorum.", func(l entity.Lead) bool { return !l.Quorum }},
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, func() (shards float64) {
			here, _ := n.routing.leaders.Placement()
			for _, id := range here {
				if g.lacks(n.shardRouter.Lead(id)) {
					shards++
				}
			}
			return shards
		}))
	}
}
