package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
	"github.com/hostd/hostd/host"
)

// The workloads of bench.
const (
	workEcho       = "echo"
	workUnary      = "unary"
	workQuery      = "query"
	workStream     = "stream"
	workHalf       = "half"
	workHot        = "hot"
	workEchoOne    = "echo-one"
	workUnaryOne   = "unary-one"
	workQueryOne   = "query-one"
	workNew        = "new"
	workActivation = "activation"
	workIdle       = "idle"
	workEntities   = "entities"
	workWake       = "wake"
	workState      = "state"
	workTimers     = "timers"
	workAlwaysOn   = "always-on"
	workNeighbours = "neighbours"
	workStart      = "start"
)

// lives are the workloads about the life of an entity. Each starts its own
// nodes and some last minutes, so they run only on request.
var lives = []string{workEntities, workWake, workState, workTimers, workAlwaysOn, workNeighbours, workStart}

// workloads is the order in which the workloads run: compared workloads
// run one after the other, and idle is measured before the nodes have had any
// work.
var workloads = []string{workIdle, workEcho, workUnary, workQuery, workStream, workHalf, workHot, workEchoOne, workUnaryOne, workQueryOne, workNew, workActivation}

// benchOptions are the flags of bench.
type benchOptions struct {
	addr          string
	tokenFile     string
	insecureToken bool
	nodes         int
	shards        uint32
	workloads     []string
	concurrency   int
	outstanding   int
	duration      time.Duration
	warmUp        time.Duration
	keys          int
	payload       int
	entities      int
	timers        int
	alwaysOn      int
	started       int
	events        int
	module        string
	source        string
	dir           string
	files         cli.TLSFiles
	tls           bool
}

// NewCommand returns the command that measures nodes.
func NewCommand(std cli.Stdio) *cobra.Command {
	var o benchOptions
	var out *cli.Output
	c := cli.Leaf("bench", "Measure the throughput and latency of nodes", 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		r, err := runBench(ctx, std, o)
		if err != nil {
			return err
		}
		return out.Print(r, r.Write)
	})
	c.Long = `Measures nodes over their API, with full durability, and an echo server for comparison. Without --addr it starts nodes
of its own in a temporary directory, each in a process, and also measures the CPU, memory and disk that they use. Workloads:

  idle        idle nodes, and the time that they took to start
  echo        concurrent callers of an echo server, each with one call at a time
  unary       the same number of callers sending durable commands to many entities
  query       the same number of callers sending linearizable queries
  stream      one stream with a full pipeline of commands to many entities
  half        commands at half the rate of stream, sent without waiting for earlier replies
  hot         one stream with a full pipeline of commands to one entity
  echo-one    one caller of the echo server
  unary-one   one caller sending durable commands
  query-one   one caller sending linearizable queries
  new         on a stream, first commands to new entities, alternating with commands to existing ones
  activation  first queries to entities with a long history, on a node that has just started

The following workloads run only if --workload names them, or all of them with --workload lives, each on new nodes:

  entities    memory of resident and of passivated entities, and command latency with many of them
  wake        queries to entities that are restored from a snapshot, and to resident ones
  state       commands to entities with 1 KB and with 1 MB of state
  timers      as many timers as --timers, all due in one second, while the nodes run at half load
  always-on   start of nodes with as many always-on entities as --always-on, all of one shard
  neighbours  commands at a fixed rate next to a module whose commands never end or use all the CPU they can get
  start       time until nodes serve after their first start, and after a restart with as many entities as --started`
	f := c.Flags()
	f.StringVar(&o.addr, "addr", "", "comma-separated `addresses` of nodes to measure, which must serve the counter module; unset starts new nodes")
	o.files.AddFlags(c)
	f.BoolVar(&o.tls, "tls", false, "start nodes that require TLS")
	cli.AddTokenFile(c, &o.tokenFile, &o.insecureToken)
	f.IntVar(&o.nodes, "nodes", 1, "`number` of nodes to start if --addr is unset")
	f.Uint32Var(&o.shards, "shards", 0, "`number` of data shards of the started nodes; 0 means the default of serve")
	f.StringSliceVar(&o.workloads, "workload", workloads, "comma-separated `names` of the workloads to run")
	f.IntVar(&o.concurrency, "concurrency", 64, "`number` of concurrent callers of echo, unary and query")
	f.IntVar(&o.outstanding, "outstanding", 256, "`number` of commands in flight on the stream")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "`time` to measure each workload for")
	f.DurationVar(&o.warmUp, "warm-up", time.Second, "`time` to run each workload before it is measured")
	f.IntVar(&o.keys, "keys", 1000, "`number` of entities that commands are spread over")
	f.IntVar(&o.payload, "payload", 0, "size of a command's payload in `bytes`, padded with a member that the module ignores; 0 means the minimum")
	f.IntVar(&o.entities, "entities", 1_000_000, "`number` of entities of the workload entities")
	f.IntVar(&o.timers, "timers", 100_000, "`number` of timers of the workload timers")
	f.IntVar(&o.alwaysOn, "always-on", 100_000, "`number` of entities of the workload always-on")
	f.IntVar(&o.started, "started", 100_000, "`number` of entities that the nodes of the workload start have when they restart")
	f.IntVar(&o.events, "events", 10_000, "`number` of events in each history of activation")
	f.StringVar(&o.module, "module", "", "`file` of the counter module; unset builds it from --source")
	f.StringVar(&o.source, "source", "", "`directory` of the hostd checkout to build the counter module from")
	f.StringVar(&o.dir, "dir", "", "`directory` for temporary data, on the disk to measure")
	out = cli.AddOutput(c, std)
	cli.Before(c, func([]string) error { return o.check() })
	return c
}

func (o *benchOptions) check() error {
	if at := slices.Index(o.workloads, "lives"); at >= 0 {
		o.workloads = slices.Replace(slices.Clone(o.workloads), at, at+1, lives...)
	}
	all := slices.Concat(workloads, lives)
	for _, w := range o.workloads {
		if !slices.Contains(all, w) {
			return cli.Usagef("--workload %q is not one of %s, lives", w, strings.Join(all, ", "))
		}
	}
	if o.nodes < 1 || o.nodes > devcluster.MaxNodes {
		return cli.Usagef("--nodes must be between 1 and %[2]d, got %[1]d", o.nodes, devcluster.MaxNodes)
	}
	if o.tls && o.addr != "" {
		return cli.Usagef("--tls applies only to started nodes: use https:// and --cacert for nodes of --addr")
	}
	if o.addr != "" {
		// Other clients may use these nodes, so do not restart them, and do not
		// measure idle nodes.
		o.workloads = slices.DeleteFunc(slices.Clone(o.workloads), func(w string) bool { return w == workActivation || w == workIdle || slices.Contains(lives, w) })
	}
	for name, n := range map[string]int{"concurrency": o.concurrency, "outstanding": o.outstanding, "keys": o.keys, "events": o.events, "entities": o.entities, "timers": o.timers, "always-on": o.alwaysOn, "started": o.started} {
		if n < 1 || n > 10_000_000 {
			return cli.Usagef("--%s must be between 1 and 10000000, got %d", name, n)
		}
	}
	if o.duration < 100*time.Millisecond || o.warmUp < 0 {
		return cli.Usagef("--duration must be at least 100ms, --warm-up at least 0")
	}
	if o.payload < 0 || o.payload > 256<<10 {
		return cli.Usagef("--payload must be between 0 and %[2]d, got %[1]d", o.payload, 256<<10)
	}
	return nil
}

// benchPayload returns a command for the counter, padded to a size with white
// space, because the counter accepts no other member.
func benchPayload(size int) []byte {
	const head, tail = `{"amount":1`, `}`
	return []byte(head + strings.Repeat(" ", max(0, size-len(head)-len(tail))) + tail)
}

func runBench(ctx context.Context, std cli.Stdio, o benchOptions) (_ *Report, err error) {
	b := &benchRun{std: std, o: o, data: "data", report: NewReport(host.Version(), len(benchPayload(o.payload)))}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	for _, w := range slices.Concat(workloads, lives) {
		if !slices.Contains(o.workloads, w) {
			continue
		}
		fmt.Fprintf(std.Err, "measuring %s\n", w)
		if err := b.run(ctx, w); err != nil {
			return nil, err
		}
	}
	b.addLoadedUsage()
	rate := func(l Line) float64 { return l.PerSecond }
	p50 := func(l Line) float64 { return l.P50Us }
	server := func(l Line) float64 { return l.ServerCPUUs }
	b.report.Compare("durable unary commands per echo", workUnary, workEcho, rate)
	b.report.Compare("queries per echo", workQuery, workEcho, rate)
	b.report.Compare("stream commands per echo", workStream, workEcho, rate)
	b.report.Compare("stream commands per unary command", workStream, workUnary, rate)
	b.report.Compare("one hot entity per many entities, on the stream", workHot, workStream, rate)
	b.report.Compare("p50 of one caller, durable command over echo", workUnaryOne, workEchoOne, p50)
	b.report.Compare("server CPU of one caller's command, durable over echo", workUnaryOne, workEchoOne, server)
	return b.report, nil
}
