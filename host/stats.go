package host

import (
	"runtime"
	"time"

	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/telemetry"
)

// counters implements clusterapi.Counters.
type counters struct{ n *Node }

// Sample returns the node's counters and its use of the machine. Rates are
// computed from two samples, so At carries a monotonic clock reading.
func (c counters) Sample() *clusterapi.Sample {
	n := c.n
	process, log := telemetry.ReadProcess(), n.replicas.log.Stats()
	s := &clusterapi.Sample{
		At: time.Now(), CPU: process.CPU, Memory: process.Memory, Processors: uint32(runtime.GOMAXPROCS(0)),
		Types: make(map[string]clusterapi.TypeCounts), Stages: n.metrics.commands.Snapshots(),
		LogBytes: log.WrittenBytes, LogSyncs: log.Syncs, Waiting: uint64(n.shardRouter.Waiting()),
		GuestMemory: uint64(n.guests.engine.Usage().MemoryBytes), Space: uint64(n.watches.disk.Free()), ReadOnly: n.watches.disk.ReadOnly(),
	}
	for _, l := range n.shardRouter.Stats() {
		s.Commands += l.Commands
		s.Events += l.Events
		s.Queries += l.Queries
		s.Rejections += l.Rejections
		s.Faults += l.Faults
		s.Limited += l.RateLimited
		s.Resident += uint64(l.Entities)
	}
	for name, t := range n.shardRouter.TypeStats() {
		s.Types[name] = clusterapi.TypeCounts{Commands: t.Commands, Events: t.Events, Rejections: t.Rejected, Faults: t.Faults, Fuel: t.Fuel, Resident: uint64(max(t.Resident, 0))}
	}
	for _, l := range n.shardRouter.Leads() {
		if l.Serving {
			s.Led++
		}
	}
	return s
}
