package debugging

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// line is a log line of a guest as it is printed.
type line struct {
	WrittenAt    time.Time `json:"writtenAt"`
	NodeID       string    `json:"nodeId"`
	EntityID     string    `json:"entityId"`
	Level        string    `json:"level"`
	Line         string    `json:"line"`
	ModuleDigest string    `json:"moduleDigest"`
}

func (l line) text() string {
	return strings.Join([]string{l.WrittenAt.UTC().Format("2006-01-02T15:04:05.000000Z"), cli.Clean(l.NodeID), cli.Clean(l.EntityID), l.Level, cli.Quote(l.Line)}, "  ")
}

// NewLogs returns the command 'hostd logs'.
func NewLogs(std cli.Stdio) *cobra.Command {
	req := &clusterv1.TailLogsRequest{}
	c := cli.Follow(std, "logs TYPE [ID]", "Print the log lines of a type's guests, or of one entity", 1, 2, req.GetFollow,
		func(ctx context.Context, s *cli.Session, args []string) iter.Seq2[line, error] {
			req.EntityType = args[0]
			if len(args) > 1 {
				req.EntityId = args[1]
			}
			say := func(format string, args ...any) { fmt.Fprintf(std.Err, format, args...) }
			if req.GetFollow() {
				return lines(newFollow(s, req, say).stream(ctx), true, say)
			}
			return lines(cli.Stream(ctx, s.ClusterService.TailLogs, req), false, say)
		}, line.text)
	c.Long = "Prints what the guests of a type wrote on all nodes: log lines, standard output and error, and the errors of failed calls. " +
		"Nodes keep only the newest lines, in memory. A line may contain data that the guest was sent."
	c.Flags().BoolVarP(&req.Follow, "follow", "f", false, "continue with new lines until interrupted; if the node fails, continue at the next one of --addr")
	return c
}

// lines yields the lines of a stream: as they arrive if follow is set,
// otherwise sorted by time. Other messages of the stream are passed to say.
func lines(stream iter.Seq2[*clusterv1.TailLogsResponse, error], follow bool, say func(format string, args ...any)) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		var all []line
		for m, err := range stream {
			if err != nil {
				yield(line{}, err)
				return
			}
			for _, node := range m.GetMissingNodes() {
				say("node %s does not answer: its lines are missing\n", cli.Clean(node))
			}
			if m.GetLost() > 0 {
				say("lost %d lines of node %s\n", m.GetLost(), cli.Clean(m.GetNodeId()))
			}
			for _, l := range m.GetLines() {
				all = append(all, line{l.GetWrittenAt().AsTime(), m.GetNodeId(), l.GetEntityId(), l.GetLevel(), l.GetText(), l.GetModuleDigest()})
			}
			if !follow {
				continue
			}
			for _, l := range all {
				if !yield(l, nil) {
					return
				}
			}
			all = all[:0]
		}
		slices.SortStableFunc(all, func(a, b line) int { return a.WrittenAt.Compare(b.WrittenAt) })
		for _, l := range all {
			if !yield(l, nil) {
				return
			}
		}
	}
}
