package bench

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// Report is the printed result of several workloads. Latencies are in
// microseconds.
type Report struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	CPUs    int    `json:"cpus"`
	Payload int    `json:"payloadBytes"`
	Nodes   int    `json:"nodes"`
	// Replication is the smallest number of voters of any shard.
	Replication int     `json:"replication"`
	Results     []Line  `json:"results"`
	Idle        *Idle   `json:"idle,omitempty"`
	Ratios      []Ratio `json:"ratios"`
	// Accounts are breakdowns of the memory at several moments.
	Accounts []Account `json:"accounts,omitempty"`
	// Figures are additional results of some workloads.
	Figures []Figure `json:"figures"`
}

// Idle is the resource usage of idle nodes.
type Idle struct {
	ReadySeconds float64    `json:"readySeconds"` // time from when the first node was started until the nodes served all shards
	Seconds      float64    `json:"seconds"`      // length of the measurement
	Shards       int        `json:"shards"`
	Nodes        []IdleNode `json:"nodes"`
}

// IdleNode is the resource usage of one idle node.
type IdleNode struct {
	Node           string  `json:"node"`
	CPUPercent     float64 `json:"cpuPercent"` // percentage of one CPU
	AnonymousBytes uint64  `json:"anonymousBytes"`
	LoadedBytes    uint64  `json:"loadedAnonymousBytes"` // memory after the other workloads
}

// Line is the result of one workload.
type Line struct {
	Workload    string  `json:"workload"`
	Replication int     `json:"replication"` // 0 if nothing is stored
	Concurrency int     `json:"concurrency"`
	Keys        int     `json:"keys"`
	Operations  uint64  `json:"operations"`
	Errors      uint64  `json:"errors"`
	Seconds     float64 `json:"seconds"`
	PerSecond   float64 `json:"perSecond"`
	MeanUs      float64 `json:"meanUs"`
	P50Us       float64 `json:"p50Us"`
	P90Us       float64 `json:"p90Us"`
	P99Us       float64 `json:"p99Us"`
	P999Us      float64 `json:"p999Us"`
	MaxUs       float64 `json:"maxUs"`
	// CPU time per operation, of all servers and of the client; 0 if unknown.
	ServerCPUUs float64 `json:"serverCpuUs"`
	ClientCPUUs float64 `json:"clientCpuUs"`
	// ServerSwitches is how often a thread of any server waited, per operation;
	// 0 if unknown.
	ServerSwitches float64 `json:"serverSwitches"`
	// Nodes are the parts of each node in these costs; nil if the nodes were
	// not started by this run.
	Nodes []nodeLine `json:"nodes,omitempty"`
}

// nodeLine is the cost of a workload on one node.
type nodeLine struct {
	Node     string  `json:"node"`
	CPUUs    float64 `json:"cpuUs"`    // processor time per operation
	Switches float64 `json:"switches"` // waits per operation
	// AnonymousBytes is the memory at the end of the workload.
	AnonymousBytes uint64 `json:"anonymousBytes"`
}

// Ratio compares two workloads of the same run.
type Ratio struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// NewReport returns an empty report for a release.
func NewReport(version string, payloadBytes int) *Report {
	return &Report{Version: version, Go: runtime.Version(), CPUs: runtime.NumCPU(), Payload: payloadBytes, Results: []Line{}, Ratios: []Ratio{}, Figures: []Figure{}}
}

// Cost is the processor time of a workload, and how often its servers waited,
// including the warm-up.
type Cost struct {
	Servers, Client time.Duration
	Switches        uint64
	Nodes           []nodeUsage
}

// nodeUsage is the usage of a node: CPU and Switches during a workload, memory at its end.
type nodeUsage struct {
	Node string
	Usage
}

// Add adds a result and its cost.
func (r *Report) Add(res *Result, replication int, cost Cost) {
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	h := &res.Latency
	var nodes []nodeLine
	for _, n := range cost.Nodes {
		all := float64(max(res.All, 1))
		nodes = append(nodes, nodeLine{Node: n.Node, CPUUs: us(n.CPU) / all, Switches: float64(n.Switches) / all, AnonymousBytes: n.Anonymous})
	}
	r.Results = append(r.Results, Line{
		Workload: res.Workload, Concurrency: res.Concurrency, Keys: res.Keys, Operations: h.Count(), Errors: res.Errors,
		Seconds: res.Elapsed.Seconds(), PerSecond: res.PerSecond(), MeanUs: us(h.Mean()), P50Us: us(h.Quantile(0.5)), P90Us: us(h.Quantile(0.9)),
		P99Us: us(h.Quantile(0.99)), P999Us: us(h.Quantile(0.999)), MaxUs: us(h.Max()), Replication: replication,
		ServerCPUUs: us(cost.Servers) / float64(max(res.All, 1)), ClientCPUUs: us(cost.Client) / float64(max(res.All, 1)),
		ServerSwitches: float64(cost.Switches) / float64(max(res.All, 1)), Nodes: nodes,
	})
}

// Compare adds the ratio of a figure between two workloads, if both ran.
func (r *Report) Compare(name, over, under string, figure func(Line) float64) {
	a, okA := r.line(over)
	b, okB := r.line(under)
	if okA && okB && figure(b) > 0 {
		r.Ratios = append(r.Ratios, Ratio{name, figure(a) / figure(b)})
	}
}

// PerSecond returns the rate of a workload, or 0 if it did not run.
func (r *Report) PerSecond(workload string) float64 {
	l, _ := r.line(workload)
	return l.PerSecond
}

func (r *Report) line(workload string) (Line, bool) {
	for _, l := range r.Results {
		if l.Workload == workload {
			return l, true
		}
	}
	return Line{}, false
}

// Write prints the report as a table.
func (r *Report) Write(w io.Writer) {
	fmt.Fprintf(w, "hostd %s, %s, %d CPUs shared by client and servers, payload %d bytes\n", r.Version, r.Go, r.CPUs, r.Payload)
	fmt.Fprintf(w, "nodes: %d, voters of a shard: %d\n\n", r.Nodes, r.Replication)
	if len(r.Results) > 0 {
		r.writeResults(w)
		fmt.Fprintln(w)
	}
	if slices.ContainsFunc(r.Results, func(l Line) bool { return len(l.Nodes) > 0 }) {
		r.writeNodes(w)
		fmt.Fprintln(w)
	}
	if r.Idle != nil {
		r.Idle.write(w)
		fmt.Fprintln(w)
	}
	for _, ratio := range r.Ratios {
		fmt.Fprintf(w, "%-56s %.2f\n", ratio.Name, ratio.Value)
	}
	if len(r.Accounts) > 0 {
		fmt.Fprintln(w)
		r.writeAccounts(w)
	}
	if len(r.Figures) > 0 {
		fmt.Fprintln(w)
		r.writeFigures(w)
	}
}

func (r *Report) writeResults(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "workload\treplicas\tin flight\tkeys\tops\tops/s\tp50\tp90\tp99\tp99.9\tmax\terrors\tserver CPU/op\tclient CPU/op\tserver waits/op\t")
	for _, l := range r.Results {
		replicas := "-"
		if l.Replication > 0 {
			replicas = strconv.Itoa(l.Replication)
		}
		waits := "-"
		if l.ServerSwitches > 0 {
			waits = fmt.Sprintf("%.1f", l.ServerSwitches)
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%d\t%.0f\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t\n", l.Workload, replicas, l.Concurrency, l.Keys, l.Operations, l.PerSecond,
			human(l.P50Us), human(l.P90Us), human(l.P99Us), human(l.P999Us), human(l.MaxUs), l.Errors, human(l.ServerCPUUs), human(l.ClientCPUUs), waits)
	}
	tw.Flush()
}

// writeNodes prints the costs of each node.
func (r *Report) writeNodes(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "workload\tnode\tCPU/op\twaits/op\tmemory after it\t")
	for _, l := range r.Results {
		for _, n := range l.Nodes {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%.1f\t%s\t\n", l.Workload, n.Node, human(n.CPUUs), n.Switches, mebibytes(n.AnonymousBytes))
		}
	}
	tw.Flush()
}

func (i *Idle) write(w io.Writer) {
	fmt.Fprintf(w, "ready after %.2fs, then idle for %.0fs with %d shards\n\n", i.ReadySeconds, i.Seconds, i.Shards)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "node\tidle CPU\tidle memory\tmemory after load\t")
	for _, n := range i.Nodes {
		fmt.Fprintf(tw, "%s\t%.2f%%\t%s\t%s\t\n", n.Node, n.CPUPercent, mebibytes(n.AnonymousBytes), mebibytes(n.LoadedBytes))
	}
	tw.Flush()
}

// mebibytes formats an amount of memory; 0 is unknown and shown as "-".
func mebibytes(n uint64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fMiB", float64(n)/(1<<20))
}

// human formats microseconds with three significant digits.
func human(us float64) string {
	switch {
	case us == 0:
		return "-"
	case us < 1000:
		return fmt.Sprintf("%.0fus", us)
	case us < 100_000:
		return fmt.Sprintf("%.2fms", us/1000)
	}
	return fmt.Sprintf("%.2fs", us/1e6)
}
