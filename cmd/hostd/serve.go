package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
	"github.com/hostd/hostd/cmd/hostd/internal/systemd"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/offline"
	"github.com/hostd/hostd/host/telemetry"
)

func newServe(std cli.Stdio) *cobra.Command {
	var file, ports string
	check := false
	shown := config.Default()
	fields := map[string]bool{}
	c := cli.Leaf("serve [--config FILE]", "Run a node", 0, 0, func(ctx context.Context, c *cobra.Command, _ []string) error {
		given := map[string]string{}
		c.Flags().Visit(func(f *pflag.Flag) {
			if fields[f.Name] {
				given[f.Name] = f.Value.String()
			}
		})
		cfg, err := config.Load(config.Sources{File: file, LookupEnv: os.LookupEnv, Flags: given})
		if err != nil {
			return cli.Usage(err)
		}
		if check {
			return checkServe(cfg, unknownVariable(), std.Out)
		}
		if cfg.CompileProgram, err = os.Executable(); err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		logger := telemetry.NewLogger(std.Err, cfg.LogLevel, cfg.LogFormat)
		limitMemory(uint64(cfg.GuestMemoryBytes), logger)
		var tasks sync.WaitGroup
		err = serveAgain(ctx, func() error { return serve(ctx, cfg, ports, logger, &tasks) }, func(aside moveAside) error {
			return beginAnew(aside, cfg.DataDir, logger)
		})
		if !endsWithin(tasks.Wait, stopGrace) {
			os.Exit(cli.ExitFailed) // standard error does not answer either, so nothing can be reported
		}
		return err
	})
	c.Long = "Runs a node. Every flag is also a key of the configuration file and, as HOSTD_KEY_NAME, an environment variable. " +
		"Flags override the environment, and the environment overrides the file."
	c.Flags().StringVar(&file, "config", os.Getenv(configVariable), "YAML configuration `file`; env HOSTD_CONFIG")
	c.Flags().BoolVar(&check, "check", false, "check the configuration, its files, the ports and the data directory, and exit without starting the node")
	c.Flags().StringVar(&ports, "ports-file", "", "`file` to write the node's addresses and process id to, in JSON, once it is ready")
	groups := []flagGroup{{"Files", []string{"config", "ports-file", "check"}}}
	for _, s := range shown.Sections() {
		g := flagGroup{title: s.Title}
		for _, f := range s.Fields {
			fields[f.Name] = true
			flag := c.Flags().VarPF(f, f.Name, "", f.Usage)
			if f.IsBoolFlag() {
				flag.NoOptDefVal = "true"
			}
			g.flags = append(g.flags, f.Name)
		}
		groups = append(groups, g)
	}
	groupFlags(c, groups)
	return c
}

// flagGroup is a list of flags with a title in help texts.
type flagGroup struct {
	title string
	flags []string
}

// groupFlags makes the usage of a command list its flags by group. Flags
// without a group are listed last.
func groupFlags(c *cobra.Command, groups []flagGroup) {
	c.SetUsageFunc(func(c *cobra.Command) error {
		w := c.OutOrStderr()
		fmt.Fprintf(w, "Usage:\n  %s\n", c.UseLine())
		grouped := map[string]bool{}
		for _, g := range groups {
			set := pflag.NewFlagSet(g.title, pflag.ContinueOnError)
			for _, name := range g.flags {
				set.AddFlag(c.Flags().Lookup(name))
				grouped[name] = true
			}
			fmt.Fprintf(w, "\n%s:\n%s", g.title, set.FlagUsages())
		}
		others := pflag.NewFlagSet("others", pflag.ContinueOnError)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !grouped[f.Name] {
				others.AddFlag(f)
			}
		})
		_, err := fmt.Fprintf(w, "\nOther flags:\n%s", others.FlagUsages())
		return err
	})
}

// moveAside moves aside the data of a directory, so that a node can start
// without data.
type moveAside func(dir string, now time.Time, out io.Writer) error

// serveAgain calls serve until the node ends with an error that does not ask for
// its data to be moved aside, or ctx ends. It does not wait for the tasks that a
// call of serve started: a slow task, for example one whose log lines nobody
// reads, must not turn the restart into an exit.
func serveAgain(ctx context.Context, serve func() error, beginAnew func(moveAside) error) error {
	for {
		err := serve()
		aside := asideFor(err)
		if aside == nil || ctx.Err() != nil {
			return err
		}
		if err := beginAnew(aside); err != nil {
			return err
		}
	}
}

// asideFor returns how to move aside the data of a node that ended with err, or
// nil if the data must stay.
func asideFor(err error) moveAside {
	switch {
	case errors.Is(err, host.ErrDamagedData), errors.Is(err, datadir.ErrRejoining):
		return offline.Renew
	case errors.Is(err, host.ErrOlderCopy):
		return offline.Rejoin
	}
	return nil
}

// beginAnew moves aside the data of a directory that is damaged, or an older
// copy of itself. The node then starts without data, and its peers send it
// their replicas.
func beginAnew(aside moveAside, dir string, logger *slog.Logger) error {
	var said strings.Builder
	err := aside(dir, time.Now(), &said)
	for line := range strings.Lines(said.String()) {
		logger.Warn(strings.TrimSpace(line))
	}
	return err
}

// serve runs the node until ctx ends, then stops it gracefully. The caller waits
// for the tasks, which end soon after serve returns unless the log or a file
// does not answer.
func serve(ctx context.Context, cfg config.Config, ports string, logger *slog.Logger, tasks *sync.WaitGroup) error {
	tending, stop := context.WithCancel(context.WithoutCancel(ctx))
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // registered before the node starts, so that a reload doesn't end a starting node
	defer signal.Stop(hangups)
	states := make(chan os.Signal, 1)
	notifyState(states)
	defer signal.Stop(states)
	var started atomic.Pointer[host.Node]
	tasks.Go(func() { runCollector(tending) })
	tasks.Go(func() { logStateOnSignal(tending, states, &started, logger) })
	defer stop()
	node, err := host.Start(ctx, cfg, logger)
	switch {
	case err != nil && ctx.Err() != nil:
		logger.Info("stopped before the node had started", "error", err)
		return nil
	case err != nil:
		return err
	}
	started.Store(node)
	manager := systemd.New(os.Getenv)
	tasks.Go(func() { manager.Watch(tending, func() { node.Ready() }) })
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	tasks.Go(func() { watchHeap(tending) })
	tasks.Go(func() { reloadOnHangup(tending, hangups, node, logger) })
	go func() {
		select {
		case err := <-node.Failure():
			end(err)
		case <-running.Done():
		}
	}()
	if err = serveUntil(running, cfg, node, ports, manager, logger); err == nil && ctx.Err() == nil {
		err = context.Cause(running)
	}
	if failure := manager.Stopping(); failure != nil {
		logger.Warn("cannot notify the service manager that the node is stopping", "error", failure)
	}
	return errors.Join(err, stopWithin(context.WithoutCancel(ctx), node.Stop, cfg.StopTimeout, stopGrace))
}

// stopGrace is how much longer than stop-timeout a stop may last. In that time
// the node closes its files without waiting for anything else.
const stopGrace = 5 * time.Second

// stopWithin stops the node, or gives up after a time limit, because
// closing a file blocks if its disk does not answer or is gone. The process
// should then exit; everything acknowledged is in the log.
func stopWithin(ctx context.Context, stop func(context.Context) error, timeout, grace time.Duration) error {
	stopping, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- stop(stopping) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(timeout + grace):
		return fmt.Errorf("the node did not stop within %v, which is stop-timeout plus %v: exiting; the next start recovers acknowledged writes from the log", timeout+grace, grace)
	}
}

// endsWithin calls wait and reports whether it returns within a time limit.
// A task that logs, such as the task that handles SIGUSR1, blocks as long as
// the log does not take its lines, and must not keep a stopping process
// alive.
func endsWithin(wait func(), limit time.Duration) bool {
	ended := make(chan struct{})
	go func() {
		wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-time.After(limit):
		return false
	}
}

// reloadOnHangup makes the node reload its certificates, credentials and
// trusted keys on each SIGHUP. A node without such files only logs the signal,
// because a supervisor's reload must never end a node.
func reloadOnHangup(ctx context.Context, hangups <-chan os.Signal, node *host.Node, logger *slog.Logger) {
	for {
		select {
		case <-hangups:
			if node.Reload() {
				logger.Info("SIGHUP: reloading certificates, credentials and trusted keys")
			} else {
				logger.Info("SIGHUP: nothing to reload; the node reads its configuration at the next start")
			}
		case <-ctx.Done():
			return
		}
	}
}

// logStateOnSignal logs the goroutines of the process and the state of the node
// on each signal; signals that arrive in the meantime count as one. While
// the node is starting, only the goroutines are logged.
func logStateOnSignal(ctx context.Context, signals <-chan os.Signal, node *atomic.Pointer[host.Node], logger *slog.Logger) {
	for {
		select {
		case <-signals:
			logGoroutines(logger)
			if n := node.Load(); n != nil {
				n.LogState()
			}
		case <-ctx.Done():
			return
		}
	}
}

func serveUntil(ctx context.Context, cfg config.Config, node *host.Node, ports string, manager systemd.Notifier, logger *slog.Logger) error {
	notReady := errors.New("not ready")
	ask := func() error {
		if !node.Ready() {
			return notReady
		}
		return nil
	}
	if devcluster.Poll(ctx, nil, devcluster.PollPeriod, ask) != nil {
		return nil // stopped before it was ready
	}
	if ports != "" {
		dir, err := filepath.Abs(cfg.DataDir)
		if err != nil {
			return err
		}
		info := devcluster.NodeInfo{NodeID: string(node.ID()), API: node.URL(), Peer: node.PeerAddr(), Health: node.HealthAddr(), PID: os.Getpid(), DataDir: dir}
		if err := devcluster.WritePorts(ports, devcluster.PortsFile{Nodes: []devcluster.NodeInfo{info}}); err != nil {
			return err
		}
	}
	if err := manager.Ready(); err != nil {
		logger.Warn("cannot notify the service manager that the node is ready", "error", err)
	}
	<-ctx.Done()
	return nil
}
