package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/telemetry"
)

// versionText describes this build in one line: the release, the commit, the Go
// version and the system.
func versionText(b telemetry.Build) string {
	about := []string{b.Go, b.System}
	if b.Commit != "" {
		from := "commit " + b.Commit[:min(12, len(b.Commit))]
		if b.Dirty {
			from += ", changed since"
		}
		about = append([]string{from}, about...)
	}
	return fmt.Sprintf("hostd %s (%s)", b.Version, strings.Join(about, ", "))
}

// versions is the output of version: this program's build, and the releases of
// the nodes if requested.
type versions struct {
	telemetry.Build
	Nodes []nodeVersion `json:"nodes,omitempty"`
}

type nodeVersion struct {
	Node    string `json:"node"`
	Version string `json:"version"`
}

func newVersion(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	var remote *cli.Remote
	nodes := false
	c := cli.Leaf("version", "Print the release of this program, and of the nodes with --nodes", 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		v := versions{Build: telemetry.ReadBuild()}
		if nodes {
			s, err := remote.Open(ctx, std)
			if err != nil {
				return err
			}
			defer s.Close()
			res, err := s.Cluster(ctx)
			if err != nil {
				return fmt.Errorf("version: %w", err)
			}
			for _, m := range res.GetMembers() {
				v.Nodes = append(v.Nodes, nodeVersion{m.GetNodeId(), m.GetVersion()})
			}
		}
		return out.Print(v, func(w io.Writer) {
			fmt.Fprintln(w, versionText(v.Build))
			for _, n := range v.Nodes {
				fmt.Fprintf(w, "node %s %s\n", n.Node, cli.Clean(n.Version))
			}
		})
	})
	c.Flags().BoolVar(&nodes, "nodes", false, "ask the cluster for the releases of its nodes too")
	remote = cli.AddRemote(c)
	out = cli.AddOutput(c, std)
	return c
}
