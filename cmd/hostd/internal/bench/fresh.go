package bench

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hostd/hostd/api/client"
)

// turns is how often the workload new alternates between the two measurements
// that it compares, so that other activity of the machine affects both
// measurements.
const turns = 3

// fresh measures the first commands of new entities on a stream, alternating
// with commands to entities that are in memory.
func (b *benchRun) fresh(ctx context.Context, l Load) error {
	l.Concurrency = b.o.outstanding
	l.WarmUp, l.Duration = l.WarmUp/turns, l.Duration/turns
	warm, first := &Result{Concurrency: l.Concurrency, Keys: l.Keys}, &Result{Workload: workNew, Concurrency: l.Concurrency}
	var cost Cost
	for turn := range turns {
		r, _, err := b.stream(ctx, l)
		if err != nil {
			return err
		}
		warm.merge(r)
		next := l
		next.Fresh, next.KeyPrefix = true, fmt.Sprintf("%s%d-", l.KeyPrefix, turn)
		r, took, err := b.stream(ctx, next)
		if err != nil {
			return err
		}
		first.merge(r)
		cost.Servers += took.Servers
		cost.Client += took.Client
		cost.Switches += took.Switches
		cost.addNodes(took.Nodes)
	}
	first.Keys = int(first.All)
	b.report.Add(first, b.report.Replication, cost)
	if rate := warm.PerSecond(); rate > 0 {
		b.report.Ratios = append(b.report.Ratios, Ratio{"first commands of new entities per command of known ones, in turns", first.PerSecond() / rate})
	}
	return nil
}

// stream is Stream with its cost.
func (b *benchRun) stream(ctx context.Context, l Load) (*Result, Cost, error) {
	before := b.spent(ctx, workNew)
	r, err := Stream(ctx, workNew, b.toNode, l)
	return r, b.spent(ctx, workNew).since(before), err
}

// merge adds a later measurement.
func (r *Result) merge(o *Result) {
	r.Elapsed += o.Elapsed
	r.Latency.Merge(&o.Latency)
	r.Errors += o.Errors
	r.All += o.All
	r.Again += o.Again
	if r.FirstError == nil {
		r.FirstError = o.FirstError
	}
}

// spending is the processor time of a workload's servers and of this process
// since they started, and the number of times the servers waited. A negative
// time is unknown. The number of waits is known if the time comes from the
// system.
type spending struct {
	servers, client time.Duration
	switches        uint64
	nodes           []nodeUsage
}

const unknownTime = time.Duration(-1)

// spent asks the system. If the system does not report the time, or if the
// nodes were not started by this run, it uses their metrics.
func (b *benchRun) spent(ctx context.Context, workload string) spending {
	s := spending{servers: unknownTime, client: unknownTime}
	if u, ok := b.servers(workload).Usage(); ok {
		s.servers, s.switches = u.CPU, u.Switches
		s.nodes = b.usageByNode(workload)
	} else if workload != workEcho && workload != workEchoOne {
		s.servers = b.cpuFromMetrics(ctx)
	}
	if cpu, ok := (Processes{os.Getpid()}).CPU(); ok {
		s.client = cpu
	}
	return s
}

// since returns the difference from an earlier spending; zero if unknown.
func (s spending) since(before spending) (c Cost) {
	if before.servers >= 0 && s.servers >= before.servers {
		c.Servers = s.servers - before.servers
		c.Switches = max(s.switches, before.switches) - before.switches
		if len(s.nodes) == len(before.nodes) {
			for i, n := range s.nodes {
				n.CPU -= before.nodes[i].CPU
				n.Switches = max(n.Switches, before.nodes[i].Switches) - before.nodes[i].Switches
				c.Nodes = append(c.Nodes, n)
			}
		}
	}
	if before.client >= 0 && s.client >= before.client {
		c.Client = s.client - before.client
	}
	return c
}

// addNodes adds a later measurement of the same nodes.
func (c *Cost) addNodes(later []nodeUsage) {
	if c.Nodes == nil {
		c.Nodes = later
		return
	}
	for i := range min(len(c.Nodes), len(later)) {
		c.Nodes[i].CPU += later[i].CPU
		c.Nodes[i].Switches += later[i].Switches
		c.Nodes[i].Anonymous = later[i].Anonymous
	}
}

// usageByNode returns the usage of each node that this run started, or nil
// if the workload does not use these nodes or the usage of one cannot be
// read.
func (b *benchRun) usageByNode(workload string) (all []nodeUsage) {
	if workload == workEcho || workload == workEchoOne || b.cluster == nil {
		return nil
	}
	for _, n := range b.cluster.Nodes {
		u, err := ReadUsage(n.PID)
		if err != nil {
			return nil
		}
		all = append(all, nodeUsage{n.Info.NodeID, u})
	}
	return all
}

// cpuSeconds is the metric of a node's processor time.
const cpuSeconds = "process_cpu_seconds_total"

// cpuFromMetrics returns the processor time of all nodes from their metrics; unknownTime
// if one of them cannot be asked or does not report it.
func (b *benchRun) cpuFromMetrics(ctx context.Context) time.Duration {
	if len(b.metricsOf) == 0 || len(b.metricsOf) != b.report.Nodes {
		return unknownTime
	}
	var total time.Duration
	for _, api := range b.metricsOf {
		m, err := ReadMetrics(ctx, b.asker, api)
		if err != nil || m[cpuSeconds] == 0 {
			return unknownTime
		}
		total += time.Duration(m[cpuSeconds] * float64(time.Second))
	}
	return total
}

// measureQueries measures linearizable queries, on entities that have had a command.
func (b *benchRun) measureQueries(ctx context.Context, workload string, l Load) (*Result, error) {
	for i := range l.Keys {
		if _, err := b.toNode.Send(ctx, client.Command{EntityType: l.EntityType, EntityID: l.key(i), Name: l.Command, Data: l.Payload}); err != nil {
			return nil, fmt.Errorf("workload %s: %w", workload, err)
		}
	}
	l.Query = "total"
	return Unary(ctx, workload, b.toNode, l)
}
