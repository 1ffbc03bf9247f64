package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/telemetry"
)

func newServe(std stdio) *cobra.Command {
	var file, ports string
	shown := config.Default()
	fields := map[string]bool{}
	c := leaf("serve [--config FILE]", "Run one node", 0, 0, func(ctx context.Context, c *cobra.Command, _ []string) error {
		given := map[string]string{}
		c.Flags().Visit(func(f *pflag.Flag) {
			if fields[f.Name] {
				given[f.Name] = f.Value.String()
			}
		})
		cfg, err := config.Load(config.Sources{File: file, LookupEnv: os.LookupEnv, Flags: given})
		if err != nil {
			return &usageError{err}
		}
		if cfg.CompileProgram, err = os.Executable(); err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		return serve(ctx, cfg, ports, telemetry.NewLogger(std.err, cfg.LogLevel, cfg.LogFormat))
	})
	c.Long = "Runs one node. Every flag is also a key of the configuration file and, as HOSTD_KEY_NAME, an environment variable; " +
		"flags win over the environment, the environment over the file."
	c.Flags().StringVar(&file, "config", "", "YAML `file` of keys and values")
	c.Flags().StringVar(&ports, "ports-file", "", "`file` that is written when the node is ready: JSON of its address and process")
	for _, f := range shown.Fields() {
		fields[f.Name] = true
		flag := c.Flags().VarPF(f, f.Name, "", f.Usage)
		if f.IsBoolFlag() {
			flag.NoOptDefVal = "true"
		}
	}
	return c
}

// serve runs the node until ctx ends, then stops it in order.
func serve(ctx context.Context, cfg config.Config, ports string, logger *slog.Logger) error {
	takeProcessors()
	tending, stop := context.WithCancel(context.WithoutCancel(ctx))
	var heap sync.WaitGroup
	heap.Go(func() { runCollector(tending) })
	defer func() {
		stop()
		heap.Wait()
	}()
	node, err := host.Start(ctx, cfg, logger)
	switch {
	case err != nil && ctx.Err() != nil:
		logger.Info("stopped before the node had started", "error", err)
		return nil
	case err != nil:
		return err
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	heap.Go(func() { watchHeap(tending) })
	go func() {
		select {
		case err := <-node.Failed():
			end(err)
		case <-running.Done():
		}
	}()
	if err = serveUntil(running, cfg, node, ports); err == nil && ctx.Err() == nil {
		err = context.Cause(running)
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.StopTimeout)
	defer cancel()
	if stopErr := node.Stop(stopping); stopErr != nil {
		err = errors.Join(err, stopErr)
	}
	return err
}

func serveUntil(ctx context.Context, cfg config.Config, node *host.Node, ports string) error {
	notReady := errors.New("not ready")
	ask := func() error {
		if !node.Ready() {
			return notReady
		}
		return nil
	}
	if poll(ctx, nil, pollPeriod, ask) != nil {
		return nil // asked to stop before it was ready
	}
	if ports != "" {
		dir, err := filepath.Abs(cfg.DataDir)
		if err != nil {
			return err
		}
		info := nodeInfo{NodeID: string(node.ID()), API: "http://" + node.Addr(), PID: os.Getpid(), DataDir: dir}
		if err := writePorts(ports, []nodeInfo{info}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}
