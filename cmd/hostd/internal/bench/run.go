package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
)

// activated is the number of entities that the workload activation queries.
const activated = 5

// benchRun is one run of bench: the nodes, the echo and their clients.
type benchRun struct {
	std     cli.Stdio
	o       benchOptions
	report  *Report
	dir     string
	cluster *devcluster.Cluster // nil if the nodes were not started by this run
	ready   time.Duration       // time it took to start
	data    string              // directory of the nodes, below dir
	guest   []byte              // module of the workloads about entities' lives
	echo    *devcluster.Child
	toNode  *client.Client
	toEcho  *client.Client
	asker   *http.Client // fetches the nodes' metrics
	// metricsOf lists the nodes whose metrics report their processor time.
	metricsOf []string
}

func (b *benchRun) open(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp(b.o.dir, "hostd-bench-*"); err != nil {
		return err
	}
	if err := b.startEcho(ctx); err != nil {
		return err
	}
	if b.o.addr != "" {
		remote := cli.Remote{Addr: b.o.addr, TokenFile: b.o.tokenFile, InsecureToken: b.o.insecureToken, Err: b.std.Err, Timeout: 10 * time.Second, Files: b.o.files}
		if b.toNode, err = remote.Dial(ctx); err != nil {
			return err
		}
		b.asker, b.metricsOf = remote.HTTPClient(), remote.URLs()
		return b.describe(ctx)
	}
	wasm, err := b.counter(ctx)
	if err != nil {
		return err
	}
	if err := b.startNodes(ctx); err != nil {
		return err
	}
	if _, err = b.toNode.Upload(ctx, wasm, true); err != nil {
		return err
	}
	return b.describe(ctx)
}

// describe asks for the number of nodes and the replication factor.
func (b *benchRun) describe(ctx context.Context) error {
	shards, err := b.toNode.Shards(ctx)
	if err != nil {
		return err
	}
	nodes := map[string]bool{}
	for _, s := range shards {
		for _, n := range slices.Concat(s.GetVoters(), s.GetLearners()) {
			nodes[n] = true
		}
		if s.GetShardId() != 0 && (b.report.Replication == 0 || len(s.GetVoters()) < b.report.Replication) {
			b.report.Replication = len(s.GetVoters())
		}
	}
	b.report.Nodes = len(nodes)
	return nil
}

func (b *benchRun) counter(ctx context.Context) ([]byte, error) {
	if b.o.module != "" {
		return cli.ReadModule(b.o.module)
	}
	source, err := devcluster.FindSource(b.o.source)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(b.std.Err, "building the counter module")
	return devcluster.BuildGuest(ctx, source, "counter", b.std.Err)
}

func (b *benchRun) startEcho(ctx context.Context) (err error) {
	ports := filepath.Join(b.dir, "echo.json")
	if b.echo, err = startChild(echoRole, []string{ports}, b.std.Err); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, devcluster.StartPatience)
	defer cancel()
	var p devcluster.PortsFile
	if err := devcluster.Poll(ctx, b.echo.Done, devcluster.PollPeriod, func() (err error) { p, err = devcluster.ReadPorts(ports); return err }); err != nil {
		return errors.New("the echo server did not start")
	}
	b.toEcho, err = client.Dial(p.Nodes[0].API)
	return err
}

// startNodes starts the run's own nodes, also after they were stopped.
func (b *benchRun) startNodes(ctx context.Context) (err error) {
	if b.toNode != nil {
		b.toNode.Close()
	}
	fmt.Fprintf(b.std.Err, "starting %s\n", devcluster.Names(b.o.nodes))
	flags := []string{"--admin", "full", "--log-level", "warn"}
	if b.o.shards > 0 {
		flags = append(flags, "--shards", fmt.Sprint(b.o.shards))
	}
	began := time.Now()
	b.cluster, err = devcluster.Start(ctx, devcluster.Options{Nodes: b.o.nodes, Data: filepath.Join(b.dir, b.data), Listen: "127.0.0.1:0", Flags: flags, Stderr: b.std.Err, TLS: b.o.tls})
	if err != nil {
		return err
	}
	b.ready = time.Since(began)
	b.asker = b.cluster.HTTPClient()
	b.toNode, err = b.cluster.Client()
	return err
}

// servers returns the processes that a workload keeps busy; none if this run
// did not start them.
func (b *benchRun) servers(workload string) (pids Processes) {
	if workload == workEcho || workload == workEchoOne {
		return Processes{b.echo.PID}
	}
	if b.cluster == nil {
		return nil
	}
	for _, n := range b.cluster.Nodes {
		pids = append(pids, n.PID)
	}
	return pids
}

// run runs one workload and measures its cost.
func (b *benchRun) run(ctx context.Context, workload string) error {
	if workload == workIdle {
		return b.idle(ctx)
	}
	if slices.Contains(lives, workload) {
		return b.life(ctx, workload)
	}
	if workload == workNew {
		return b.fresh(ctx, b.load(workload))
	}
	before := b.spent(ctx, workload)
	res, err := b.measure(ctx, workload)
	if err != nil {
		return err
	}
	var cost Cost
	if workload != workActivation { // that workload restarts its processes
		cost = b.spent(ctx, workload).since(before)
	}
	replication := b.report.Replication
	if workload == workEcho || workload == workEchoOne {
		replication = 0
	}
	b.report.Add(res, replication, cost)
	return nil
}

// settling is how long nodes rest before they count as idle: raft groups
// hibernate, and the garbage from starting the nodes is collected.
const settling = 3 * time.Second

// idle measures nodes without any load.
func (b *benchRun) idle(ctx context.Context) error {
	shards, err := b.toNode.Shards(ctx)
	if err != nil {
		return err
	}
	idle := &Idle{ReadySeconds: b.ready.Seconds(), Shards: len(shards) - 1}
	if err := rest(ctx, settling); err != nil {
		return err
	}
	began := time.Now()
	var before []Usage
	for _, n := range b.cluster.Nodes {
		u, err := ReadUsage(n.PID)
		if err != nil {
			return fmt.Errorf("workload %s: %w", workIdle, err)
		}
		before = append(before, u)
	}
	if err := rest(ctx, b.o.duration); err != nil {
		return err
	}
	idle.Seconds = time.Since(began).Seconds()
	for i, n := range b.cluster.Nodes {
		u, err := ReadUsage(n.PID)
		if err != nil {
			return fmt.Errorf("workload %s: %w", workIdle, err)
		}
		idle.Nodes = append(idle.Nodes, IdleNode{
			Node: n.Info.NodeID, CPUPercent: 100 * (u.CPU - before[i].CPU).Seconds() / idle.Seconds, AnonymousBytes: u.Anonymous,
		})
	}
	b.report.Idle = idle
	return nil
}

// addLoadedUsage adds the current memory to the usage of idle nodes.
func (b *benchRun) addLoadedUsage() {
	if b.report.Idle == nil || len(b.report.Results) == 0 {
		return
	}
	for i, n := range b.cluster.Nodes {
		if u, err := ReadUsage(n.PID); err == nil {
			b.report.Idle.Nodes[i].LoadedBytes = u.Anonymous
		}
	}
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// load returns the default load of a workload.
func (b *benchRun) load(workload string) Load {
	return Load{EntityType: "counter", Command: "add", Payload: benchPayload(b.o.payload), Keys: b.o.keys,
		KeyPrefix: fmt.Sprintf("bench-%d-%s-", os.Getpid(), workload), Concurrency: b.o.concurrency, WarmUp: b.o.warmUp, Duration: b.o.duration}
}

// measure runs one workload.
func (b *benchRun) measure(ctx context.Context, workload string) (*Result, error) {
	l := b.load(workload)
	switch workload {
	case workQuery:
		return b.measureQueries(ctx, workload, l)
	case workEcho:
		return Unary(ctx, workload, b.toEcho, l)
	case workUnary:
		return Unary(ctx, workload, b.toNode, l)
	case workEchoOne:
		l.Concurrency = 1
		return Unary(ctx, workload, b.toEcho, l)
	case workQueryOne:
		l.Concurrency = 1
		return b.measureQueries(ctx, workload, l)
	case workUnaryOne:
		l.Concurrency = 1
		return Unary(ctx, workload, b.toNode, l)
	case workStream:
		l.Concurrency = b.o.outstanding
		return Stream(ctx, workload, b.toNode, l)
	case workHalf:
		return b.half(ctx, l)
	case workHot:
		l.Concurrency, l.Keys = b.o.outstanding, 1
		return Stream(ctx, workload, b.toNode, l)
	}
	return b.activate(ctx, l)
}

// activate fills entities, restarts the nodes and queries each entity once.
func (b *benchRun) activate(ctx context.Context, l Load) (*Result, error) {
	var keys []string
	for i := range activated {
		keys = append(keys, fmt.Sprintf("%s%d", l.KeyPrefix, i))
		if err := Fill(ctx, b.toNode, l, keys[i], b.o.events); err != nil {
			return nil, err
		}
	}
	if err := b.cluster.Stop(); err != nil {
		return nil, err
	}
	if err := b.startNodes(ctx); err != nil {
		return nil, err
	}
	// The very first call loads the module, so it goes to a different entity.
	if _, err := b.toNode.Query(ctx, client.Query{EntityType: l.EntityType, EntityID: l.KeyPrefix + "warm", Name: "total"}); err != nil {
		return nil, err
	}
	return Activate(ctx, workActivation, b.toNode, l.EntityType, "total", slices.Clone(keys), uint64(b.o.events))
}

func (b *benchRun) close() error {
	var err error
	for _, c := range []*client.Client{b.toNode, b.toEcho} {
		if c != nil {
			c.Close()
		}
	}
	if b.cluster != nil {
		err = b.cluster.Stop()
	}
	if b.echo != nil {
		b.echo.Kill()
	}
	if b.dir != "" {
		err = errors.Join(err, os.RemoveAll(b.dir))
	}
	return err
}
