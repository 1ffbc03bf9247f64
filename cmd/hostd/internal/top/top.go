// Package top has the command that shows the current activity of nodes and
// entity types. It measures nothing itself: nodes measure, and it adds up their
// numbers.
//
// On a terminal the command owns a goroutine that reads a stream, and waits for
// it before it returns.
package top

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

const (
	leastInterval = time.Second
	mostInterval  = time.Minute
	// gather is how long a picture waits for the statistics of all nodes.
	gather = 200 * time.Millisecond
	// reopenEvery is the interval between two searches for another node.
	reopenEvery = 500 * time.Millisecond
)

// options are the options of the command.
type options struct {
	interval time.Duration
	once     bool
	hot      uint32
}

func (o options) request(once bool) *clusterv1.WatchStatsRequest {
	return &clusterv1.WatchStatsRequest{Interval: durationpb.New(o.interval), Once: once}
}

// New returns the command 'hostd top'.
func New(std cli.Stdio) *cobra.Command {
	var o options
	var out *cli.Output
	c := cli.Talk(std, "top", "Show rates, latencies and memory of nodes and entity types", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) error {
		if o.once || out.Structured() || !cli.OnTerminal(std.Out) {
			p, err := cli.Anywhere(ctx, s, func(ctx context.Context) (*picture, error) { return once(ctx, s, o) })
			if err != nil {
				return err
			}
			if err := out.Print(p.view(), func(w io.Writer) { p.write(w, 0) }); err != nil {
				return err
			}
			p.printMissing(std.Err)
			return nil
		}
		return follow(ctx, s, o)
	})
	out = cli.AddOutput(c, std)
	c.Long = "Shows for each node and each entity type the rates of commands, events, rejections and faults, and how long commands waited for an executor, ran in the guest and waited for their commit. " +
		"On a terminal it refreshes until interrupted; otherwise, and with -o json, it measures once. " +
		"The rates of a type are sums over all nodes, its latencies those of the slowest node."
	c.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "`time` that nodes measure for, 1s to 1m")
	c.Flags().BoolVar(&o.once, "once", false, "measure once, even on a terminal")
	c.Flags().Uint32Var(&o.hot, "hot", 5, "`number` of the busiest entities to show, at most 100")
	cli.Before(c, func([]string) error {
		switch {
		case o.interval < leastInterval || o.interval > mostInterval:
			return cli.Usagef("--interval must be between %[2]v and %[3]v, got %[1]v", o.interval, leastInterval, mostInterval)
		case o.hot > 100:
			return cli.Usagef("--hot must be at most 100, got %d", o.hot)
		}
		return nil
	})
	return c
}

// once makes one measurement of all nodes.
func once(ctx context.Context, s *cli.Session, o options) (*picture, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout+o.interval)
	defer cancel()
	p := newPicture(o.interval)
	for m, err := range cli.Stream(ctx, s.ClusterService.WatchStats, o.request(true)) {
		if err != nil {
			return nil, err
		}
		p.take(m, time.Now())
	}
	return p, hot(ctx, s, o, p)
}

// hot requests the entities with the most calls.
func hot(ctx context.Context, s *cli.Session, o options, p *picture) error {
	if o.hot == 0 {
		return nil
	}
	res, err := cli.Unary(ctx, s, s.EntityService.ListHotEntities, &entityv1.ListHotEntitiesRequest{Limit: o.hot})
	p.hot = res.GetEntities()
	return err
}

// follow shows measurements until ctx ends. If its node ends, it continues
// at the next node.
func follow(ctx context.Context, s *cli.Session, o options) error {
	for {
		err := show(ctx, s, o)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !cli.NodeEnded(err) {
			return err
		}
		fmt.Fprintln(s.Std.Err, "the node has stopped; trying the next one")
		select {
		case <-time.After(reopenEvery):
		case <-ctx.Done():
			return nil
		}
		if failed := s.Reopen(ctx); failed != nil {
			return failed
		}
	}
}

// show paints the measurements of a stream until it ends.
func show(ctx context.Context, s *cli.Session, o options) error {
	ctx, cancel := context.WithCancel(ctx)
	messages, ended := make(chan *clusterv1.WatchStatsResponse), make(chan error, 1)
	defer func() { cancel(); <-ended }()
	go func() {
		var failed error
		for m, err := range cli.Stream(ctx, s.ClusterService.WatchStats, o.request(false)) {
			if failed = err; err != nil {
				break
			}
			select {
			case messages <- m:
			case <-ctx.Done():
			}
		}
		ended <- failed
		close(ended)
	}()
	p := newPicture(o.interval)
	var due <-chan time.Time
	for {
		select {
		case m := <-messages:
			p.take(m, time.Now())
			if due == nil {
				due = time.After(gather)
			}
		case <-due:
			due = nil
			if err := hot(ctx, s, o, p); err != nil {
				return err
			}
			p.paint(s.Std.Out)
		case err := <-ended:
			return err
		}
	}
}

// paint clears the screen and writes as much of the picture as fits.
func (p *picture) paint(w io.Writer) {
	fmt.Fprint(w, "\x1b[H\x1b[2J")
	p.write(w, cli.Height(w))
	var said bytes.Buffer
	p.printMissing(&said)
	io.WriteString(w, cli.NewPaint(w).Warn(said.String()))
}
