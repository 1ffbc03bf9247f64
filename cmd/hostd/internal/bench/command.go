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
	workNew        = "new"
	workActivation = "activation"
	workIdle       = "idle"
	workEntities   = "entities"
	workWake       = "wake"
	workState      = "state"
	workTimers     = "timers"
	workRemember   = "remember"
	workNeighbours = "neighbours"
)

// lives are the workloads of an entity's life. Each starts nodes of its own
// and some take minutes, so they run only when they are asked for.
var lives = []string{workEntities, workWake, workState, workTimers, workRemember, workNeighbours}

// workloads are in the order in which they run: those that are compared come
// one after the other, and nodes are idle before they have had anything to do.
var workloads = []string{workIdle, workEcho, workUnary, workQuery, workStream, workHalf, workHot, workEchoOne, workUnaryOne, workNew, workActivation}

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
	remembered    int
	events        int
	module        string
	source        string
	dir           string
	files         cli.TLSFiles
	tls           bool
}

// NewCommand makes the command that measures nodes.
func NewCommand(std cli.Stdio) *cobra.Command {
	var o benchOptions
	var out *cli.Output
	c := cli.Leaf("bench", "Measure nodes", 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		r, err := runBench(ctx, std, o)
		if err != nil {
			return err
		}
		return out.Print(r, r.Write)
	})
	c.Long = `Measures nodes over their API, with everything made durable, and a server that only echoes, for comparison.
Without --addr it starts nodes of its own in a temporary directory, each a process, and measures what they take of the
machine, too. Workloads:

  idle        nodes without anything to do; with it the time they took to start
  echo        callers of a server that does nothing, one call after another
  unary       the same callers sending durable commands over many entities
  query       the same callers asking, each to see all that was acknowledged
  stream      one stream kept full, over many entities
  half        commands at half of the rate of stream, sent whether or not earlier ones are answered
  hot         one stream kept full, all on one entity
  echo-one    one caller of the echo
  unary-one   one caller sending durable commands
  new         the first commands of new entities on the stream, in turns with commands to known ones
  activation  the first query on entities with a long history, on a node just started

Those of an entity's life run only when they are named, or all with --workload lives, each on new nodes:

  entities    memory of entities that are in it, and of passive ones; a command when there are many of them
  wake        queries on entities that come back from a snapshot, and on the same in memory
  state       commands on entities with 1 KB and with 1 MB of state
  timers      as many timers as --timers due in one second, beside half of the load that the nodes can take
  remember    a start of nodes with as many entities to start as --remembered, all of one shard
  neighbours  commands at a fixed rate beside commands of another module that never end, or take all they can get`
	f := c.Flags()
	f.StringVar(&o.addr, "addr", "", "`address` of a node to measure, or several with commas between them, where a counter is active")
	o.files.AddFlags(c)
	f.BoolVar(&o.tls, "tls", false, "have the nodes that are started take calls over TLS only")
	cli.AddTokenFile(c, &o.tokenFile, &o.insecureToken)
	f.IntVar(&o.nodes, "nodes", 1, "`number` of nodes to start, without --addr")
	f.Uint32Var(&o.shards, "shards", 0, "data `shards` of what is started; 0 is the default of serve")
	f.StringSliceVar(&o.workloads, "workload", workloads, "`names` of what to run, with commas")
	f.IntVar(&o.concurrency, "concurrency", 64, "`callers` of echo, unary and query")
	f.IntVar(&o.outstanding, "outstanding", 256, "`commands` in flight on the stream")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "`time` each workload is measured")
	f.DurationVar(&o.warmUp, "warm-up", time.Second, "`time` each workload runs before it is measured")
	f.IntVar(&o.keys, "keys", 1000, "`entities` that commands are spread over")
	f.IntVar(&o.payload, "payload", 0, "`bytes` of a command's payload, filled up with a member that the module ignores; 0 is the smallest")
	f.IntVar(&o.entities, "entities", 1_000_000, "`entities` of the workload entities")
	f.IntVar(&o.timers, "timers", 100_000, "`timers` of the workload timers")
	f.IntVar(&o.remembered, "remembered", 100_000, "`entities` of the workload remember")
	f.IntVar(&o.events, "events", 10_000, "`length` of the histories of activation")
	f.StringVar(&o.module, "module", "", "`file` of the counter module; built from source when it is not given")
	f.StringVar(&o.source, "source", "", "checkout `directory` to build it from")
	f.StringVar(&o.dir, "dir", "", "`directory` to make the temporary one in: the disk to measure")
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
		return cli.Usagef("--nodes is %d, must be from 1 to %d", o.nodes, devcluster.MaxNodes)
	}
	if o.tls && o.addr != "" {
		return cli.Usagef("--tls is of nodes that are started: those of --addr are called with https:// and --cacert")
	}
	if o.addr != "" {
		// Nodes that others use are not restarted for a measurement, nor idle.
		o.workloads = slices.DeleteFunc(slices.Clone(o.workloads), func(w string) bool { return w == workActivation || w == workIdle || slices.Contains(lives, w) })
	}
	for name, n := range map[string]int{"concurrency": o.concurrency, "outstanding": o.outstanding, "keys": o.keys, "events": o.events, "entities": o.entities, "timers": o.timers, "remembered": o.remembered} {
		if n < 1 || n > 10_000_000 {
			return cli.Usagef("--%s is %d, must be from 1 to 10000000", name, n)
		}
	}
	if o.duration < 100*time.Millisecond || o.warmUp < 0 {
		return cli.Usagef("--duration must be at least 100ms, --warm-up at least 0")
	}
	if o.payload < 0 || o.payload > 256<<10 {
		return cli.Usagef("--payload is %d, must be from 0 to %d", o.payload, 256<<10)
	}
	return nil
}

// benchPayload is a command of the counter, filled up to a size with white
// space: the counter takes no other member.
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
	b.loaded()
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
