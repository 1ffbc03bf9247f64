package debugging

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/debugging/pprofile"
	"github.com/hostd/hostd/host/files"
)

// NewGuestProfile returns the command 'hostd module profile'.
func NewGuestProfile(std cli.Stdio) *cobra.Command {
	var path string
	var duration time.Duration
	c := cli.Talk(std, "profile TYPE", "Profile where the guests of a type spend their fuel, for go tool pprof", 1, 1, func(ctx context.Context, s *cli.Session, args []string) error {
		p := &pprofile.Profile{Of: args[0], Began: time.Now(), Long: duration}
		for m, err := range cli.Stream(ctx, s.ClusterService.ProfileGuests, &clusterv1.ProfileGuestsRequest{EntityType: args[0], Duration: durationpb.New(duration)}) {
			if err != nil {
				return err
			}
			for _, node := range m.GetMissingNodes() {
				fmt.Fprintf(std.Err, "node %s did not return a profile\n", cli.Clean(node))
			}
			if err := addStacks(p, m); err != nil {
				return err
			}
		}
		content, err := p.Encode()
		if err != nil {
			return err
		}
		to := path
		if to == "" {
			to = args[0] + ".pb.gz"
		}
		if err := files.Replace(to, content, 0o600); err != nil {
			return err
		}
		fuel, samples := p.Total()
		fmt.Fprintf(std.Err, "wrote %d units of fuel in %d samples to %s: go tool pprof -top %s\n", fuel, samples, to, to)
		return nil
	})
	c.Long = "Samples on all nodes in which functions the guests of an entity type spend their fuel, and writes a profile with the function names of the module. " +
		"It takes a sample about every 40,000 units of fuel, in commands, in queries and while states are built. It needs the verb read."
	c.Flags().DurationVar(&duration, "duration", 30*time.Second, "`time` that the measurement takes, 1s to 5m")
	c.Flags().StringVarP(&path, "file", "o", "", "`file` to write; defaults to TYPE.pb.gz")
	cli.SetTimeout(c, 6*time.Minute)
	cli.Before(c, func([]string) error {
		if duration < time.Second || duration > maxProfile {
			return cli.Usagef("--duration must be between 1s and %s, got %s", maxProfile, duration)
		}
		return nil
	})
	return c
}

// addStacks adds the stacks that a node has sampled.
func addStacks(p *pprofile.Profile, m *clusterv1.ProfileGuestsResponse) error {
	for _, s := range m.GetStacks() {
		to := pprofile.Stack{Samples: s.GetSamples(), Fuel: s.GetFuel()}
		for _, f := range s.GetFunctions() {
			if int(f) >= len(m.GetFunctions()) {
				return fmt.Errorf("node %s returned a profile with an unknown function", cli.Clean(m.GetNodeId()))
			}
			to.Functions = append(to.Functions, m.GetFunctions()[f])
		}
		p.Add(to)
	}
	return nil
}
