package host

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/guest"
)

// guestCollector collects what guests cost: fuel, commands and residents by
// entity type, faults by kind, and memory and instances of the node.
type guestCollector struct{ n *Node }

var (
	typeLabel            = []string{"entity_type"}
	typeFuel             = prometheus.NewDesc("hostd_type_fuel_total", "Fuel used by commands.", typeLabel, nil)
	typeCommands         = prometheus.NewDesc("hostd_type_commands_total", "Commands passed to guests, whatever their result.", typeLabel, nil)
	typeResident         = prometheus.NewDesc("hostd_type_entities_resident", "Resident entities.", typeLabel, nil)
	typeCompared         = prometheus.NewDesc("hostd_guest_states_compared_total", "States of evicted entities that were compared with the state replayed from their events.", typeLabel, nil)
	typeDiverged         = prometheus.NewDesc("hostd_guest_divergence_total", "Compared states that differed, so the guest is not pure.", typeLabel, nil)
	faultKinds           = prometheus.NewDesc("hostd_guest_faults_by_kind_total", "Guest calls that failed because of a guest fault.", []string{"kind"}, nil)
	engineOpen           = prometheus.NewDesc("hostd_engine_instances", "Guest instances of the node, including those outside of the executors.", nil, nil)
	engineMemory         = prometheus.NewDesc("hostd_engine_memory_bytes", "Linear memory of all guest instances of the node, as seen by the guests.", nil, nil)
	engineReserve        = prometheus.NewDesc("hostd_engine_reserved_bytes", "Reserved address space of all guest instances of the node; it uses no memory.", nil, nil)
	engineCharged        = prometheus.NewDesc("hostd_engine_charged_bytes", "Memory that counts towards the limit of twice guest-memory-bytes.", nil, nil)
	executorTimers       = prometheus.NewDesc("hostd_timers_fired_total", "Timers whose command was executed.", nil, nil)
	executorTimersDue    = prometheus.NewDesc("hostd_timers_due", "Due timers that were read and have not fired yet.", nil, nil)
	executorStarts       = prometheus.NewDesc("hostd_always_on_starts_total", "Starts of always-on entities by the node.", nil, nil)
	executorSnapshots    = prometheus.NewDesc("hostd_snapshots_total", "Proposed entity snapshots.", nil, nil)
	executorTooLarge     = prometheus.NewDesc("hostd_snapshots_too_large_total", "Entity snapshots that were skipped because the state exceeds the limit.", nil, nil)
	executorPassivations = prometheus.NewDesc("hostd_passivations_total", "Entities evicted because they were idle or requested it.", nil, nil)
	executorLoads        = prometheus.NewDesc("hostd_snapshot_loads_total", "Loaded entities whose load started from a snapshot.", nil, nil)
	executorQuarantines  = prometheus.NewDesc("hostd_entities_quarantined_total", "Times that an entity was quarantined after repeated faults.", nil, nil)
	executorRecycled     = prometheus.NewDesc("hostd_guest_instances_recycled_total", "Guest instances closed because they had no or few entities.", nil, nil)
	guestLogDrops        = prometheus.NewDesc("hostd_guest_log_dropped_total", "Guest log lines dropped by the rate limit of their module.", nil, nil)
	executorEvictions    = prometheus.NewDesc("hostd_evictions_total", "Entities evicted to free memory.", nil, nil)
)

// outputKind is the kind of faults that only executors detect: output that lies
// within the guest's memory, but breaks the contract or exceeds a limit.
const outputKind = "bad output"

// Describe implements prometheus.Collector.
func (c guestCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{typeFuel, typeCommands, typeResident, typeCompared, typeDiverged, faultKinds, engineOpen, engineMemory,
		engineReserve, engineCharged, executorTimers, executorTimersDue, executorStarts, executorSnapshots, executorTooLarge, executorLoads, executorPassivations, executorEvictions, executorQuarantines, executorRecycled, guestLogDrops} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c guestCollector) Collect(out chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	checked := c.n.guests.states.Stats()
	for name, t := range c.n.shardRouter.TypeStats() {
		count(typeCompared, checked[name].Compared, name)
		count(typeDiverged, checked[name].Diverged, name)
		count(typeFuel, t.Fuel, name)
		count(typeCommands, t.Commands, name)
		gauge(typeResident, t.Resident, name)
	}
	var sum entity.Stats
	for _, s := range c.n.shardRouter.Stats() {
		sum.BadOutputs += s.BadOutputs
		sum.Timers += s.Timers
		sum.TimersDue += s.TimersDue
		sum.AlwaysOnStarts += s.AlwaysOnStarts
		sum.Snapshots += s.Snapshots
		sum.SnapshotsTooLarge += s.SnapshotsTooLarge
		sum.Passivations += s.Passivations
		sum.Shed += s.Shed
		sum.SnapshotLoads += s.SnapshotLoads
		sum.Quarantines += s.Quarantines
		sum.Recycled += s.Recycled
	}
	for kind := range guest.FaultKinds {
		count(faultKinds, c.n.guests.modules.Types.Faults(kind), kind.String())
	}
	count(faultKinds, sum.BadOutputs, outputKind)
	count(executorTimers, sum.Timers)
	gauge(executorTimersDue, int64(sum.TimersDue))
	count(executorStarts, sum.AlwaysOnStarts)
	count(executorSnapshots, sum.Snapshots)
	count(executorTooLarge, sum.SnapshotsTooLarge)
	count(executorPassivations, sum.Passivations)
	count(executorEvictions, sum.Shed)
	count(guestLogDrops, c.n.guests.engine.LogDropped())
	count(executorLoads, sum.SnapshotLoads)
	count(executorQuarantines, sum.Quarantines)
	count(executorRecycled, sum.Recycled)
	u := c.n.guests.engine.Usage()
	gauge(engineOpen, int64(u.Instances))
	gauge(engineMemory, u.MemoryBytes)
	gauge(engineReserve, u.ReservedBytes)
	gauge(engineCharged, u.ChargedBytes)
}
