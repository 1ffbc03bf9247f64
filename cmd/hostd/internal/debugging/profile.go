package debugging

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/files"
)

// maxProfile is the longest time that a profile may take.
const maxProfile = 5 * time.Minute

// profileKinds are the kinds of profiles of a node, by name.
var profileKinds = map[string]clusterv1.ProfileNodeRequest_Kind{
	"cpu": clusterv1.ProfileNodeRequest_KIND_CPU, "heap": clusterv1.ProfileNodeRequest_KIND_HEAP,
	"goroutine": clusterv1.ProfileNodeRequest_KIND_GOROUTINE, "block": clusterv1.ProfileNodeRequest_KIND_BLOCK,
}

// NewProfile returns the command 'hostd node profile'.
func NewProfile(std cli.Stdio) *cobra.Command {
	var kind, path string
	var duration time.Duration
	c := cli.Talk(std, "profile NODE", "Profile a node's process, for go tool pprof", 1, 1, func(ctx context.Context, s *cli.Session, args []string) error {
		var profile []byte
		node := args[0]
		for m, err := range cli.Stream(ctx, s.ClusterService.ProfileNode, &clusterv1.ProfileNodeRequest{NodeId: node, Kind: profileKinds[kind], Duration: durationpb.New(duration)}) {
			if err != nil {
				return err
			}
			profile = append(profile, m.GetPart()...)
		}
		to := path
		if to == "" {
			to = fmt.Sprintf("%s-%s.pb.gz", strings.Trim(cli.Clean(node), "."), kind)
		}
		if err := files.Replace(to, profile, 0o600); err != nil {
			return err
		}
		fmt.Fprintf(std.Err, "wrote %d bytes to %s: go tool pprof %s\n", len(profile), to, to)
		return nil
	})
	c.Long = "Profiles the process of a node: where it uses CPU time (cpu) or memory (heap), what its goroutines do (goroutine), or what they wait for (block). " +
		"It needs the verb admin. A profile contains function names, but no data of callers. A block profile slows the node down by a few percent."
	c.Flags().StringVar(&kind, "type", "cpu", "`kind` of profile: cpu, heap, goroutine or block")
	c.Flags().DurationVar(&duration, "duration", 10*time.Second, "`time` that cpu and block profiles take, 1s to 5m")
	c.Flags().StringVarP(&path, "file", "o", "", "`file` to write; defaults to NODE-KIND.pb.gz")
	cli.SetTimeout(c, 6*time.Minute)
	cli.Before(c, func([]string) error {
		if _, ok := profileKinds[kind]; !ok {
			return cli.Usagef("--type must be one of %s", strings.Join(slices.Sorted(maps.Keys(profileKinds)), ", "))
		}
		if duration < time.Second || duration > maxProfile {
			return cli.Usagef("--duration must be between 1s and %s, got %s", maxProfile, duration)
		}
		return nil
	})
	return c
}
