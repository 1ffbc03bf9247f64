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
	typeFuel             = prometheus.NewDesc("hostd_type_fuel_total", "Units of fuel that commands have spent.", typeLabel, nil)
	typeCommands         = prometheus.NewDesc("hostd_type_commands_total", "Commands given to guests, whatever came of them.", typeLabel, nil)
	typeResident         = prometheus.NewDesc("hostd_type_entities_resident", "Entities in memory.", typeLabel, nil)
	typeCompared         = prometheus.NewDesc("hostd_guest_states_compared_total", "States of entities that left memory which were compared with what their events make of them.", typeLabel, nil)
	typeDiverged         = prometheus.NewDesc("hostd_guest_divergence_total", "Of the states that were compared those that differ: the guest is not pure.", typeLabel, nil)
	faultKinds           = prometheus.NewDesc("hostd_guest_faults_by_kind_total", "Guest calls that failed by the guest's fault.", []string{"kind"}, nil)
	engineOpen           = prometheus.NewDesc("hostd_engine_instances", "Guest instances of the node, those beside the lanes too.", nil, nil)
	engineMemory         = prometheus.NewDesc("hostd_engine_memory_bytes", "Linear memory of all guest instances of the node as their guests see it.", nil, nil)
	engineReserve        = prometheus.NewDesc("hostd_engine_reserved_bytes", "Address space of all guest instances of the node; it costs nothing.", nil, nil)
	engineCharged        = prometheus.NewDesc("hostd_engine_charged_bytes", "What is counted against twice guest-memory-bytes.", nil, nil)
	executorTimers       = prometheus.NewDesc("hostd_timers_fired_total", "Timers whose command took effect.", nil, nil)
	executorTimersDue    = prometheus.NewDesc("hostd_timers_due", "Timers that are due, were read and have not fired.", nil, nil)
	executorStarts       = prometheus.NewDesc("hostd_entities_remembered_total", "Entities started again without being asked for.", nil, nil)
	executorSnapshots    = prometheus.NewDesc("hostd_snapshots_total", "Snapshots of entities proposed.", nil, nil)
	executorTooLarge     = prometheus.NewDesc("hostd_snapshots_too_large_total", "Snapshots that were not taken because the entity's state is over the limit.", nil, nil)
	executorPassivations = prometheus.NewDesc("hostd_passivations_total", "Entities that left memory because they were idle or asked to.", nil, nil)
	executorLoads        = prometheus.NewDesc("hostd_snapshot_loads_total", "Entities loaded from a snapshot, of all that were loaded.", nil, nil)
	executorQuarantines  = prometheus.NewDesc("hostd_entities_parked_total", "Times that an entity was parked, as it failed again and again.", nil, nil)
	executorRecycled     = prometheus.NewDesc("hostd_guest_instances_recycled_total", "Guest instances closed because they were empty, or mostly so.", nil, nil)
	guestLogDrops        = prometheus.NewDesc("hostd_guest_log_dropped_total", "Lines of guests that were not logged because their module had logged too much.", nil, nil)
	executorEvictions    = prometheus.NewDesc("hostd_evictions_total", "Entities that left memory to make room.", nil, nil)
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
