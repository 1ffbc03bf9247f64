package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

func newShard(std cli.Stdio) *cobra.Command {
	return cli.Group("shard", "List, watch and move shards", newShardList(std), newShardWatch(std), newShardMove(std))
}

type shardList struct {
	Shards []*cli.Object `json:"shards"`
	shards []*clusterv1.Shard
}

// stoppedReplicas returns the stopped replicas of a shard, each as "node
// (reason)".
func stoppedReplicas(s *clusterv1.Shard) []string {
	out := []string{}
	for _, r := range s.GetStopped() {
		out = append(out, fmt.Sprintf("%s (%s)", r.GetNodeId(), r.GetReason()))
	}
	return out
}

func newShardList(std cli.Stdio) *cobra.Command {
	return cli.Ask(std, "ls", "List shards with their leaders, replicas and log positions", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (shardList, error) {
		shards, err := s.Shards(ctx)
		v := shardList{cli.Views(shards), shards}
		for i, shard := range shards {
			v.Shards[i].Set("stopped", stoppedReplicas(shard))
		}
		return v, err
	}, func(w io.Writer, v shardList) {
		cli.Table(w, "SHARD\tLEADER\tTERM\tVOTERS\tLEARNERS\tENTITIES\tAPPLIED\tBYTES\tSTOPPED", func(row func(...any)) {
			for _, s := range v.shards {
				row(s.GetShardId(), s.GetLeader(), s.GetTerm(), votersOf(s), strings.Join(s.GetLearners(), ","), s.GetEntityCount(), s.GetAppliedIndex(), s.GetBytes(),
					strings.Join(stoppedReplicas(s), ","))
			}
		})
	})
}

// shardLine is the new state of a shard, as it is printed.
type shardLine struct {
	*cli.Object
	text string
}

func newShardWatch(std cli.Stdio) *cobra.Command {
	c := cli.Follow(std, "watch", "Print the leader and replicas of every shard, and every change of them", 0, 0, cli.Always,
		func(ctx context.Context, s *cli.Session, _ []string) iter.Seq2[shardLine, error] {
			return shardLines(cli.Stream(ctx, s.ClusterService.WatchShards, &clusterv1.WatchShardsRequest{}))
		}, func(l shardLine) string { return l.text })
	c.Long = "Prints a line for each shard, and a new line whenever its leader or its replicas change, as seen by one node."
	return c
}

// shardLines yields the lines of a watch.
func shardLines(stream iter.Seq2[*clusterv1.WatchShardsResponse, error]) iter.Seq2[shardLine, error] {
	return func(yield func(shardLine, error) bool) {
		said := map[uint32]string{}
		for m, err := range stream {
			if err != nil {
				yield(shardLine{}, err)
				return
			}
			for _, s := range m.GetShards() {
				l := shardLine{cli.View(s), shardText(s)}
				l.Set("stopped", stoppedReplicas(s))
				if l.text == said[s.GetShardId()] {
					continue // only the size of its data has changed
				}
				if said[s.GetShardId()] = l.text; !yield(l, nil) {
					return
				}
			}
		}
	}
}

func shardText(s *clusterv1.Shard) string {
	text := fmt.Sprintf("shard %d: led by %s, term %d, voters %s", s.GetShardId(), cli.Clean(cmp.Or(s.GetLeader(), "nobody")), s.GetTerm(), cli.Clean(votersOf(s)))
	if len(s.GetLearners()) > 0 {
		text += ", learners " + cli.Clean(strings.Join(s.GetLearners(), ","))
	}
	if len(s.GetStopped()) > 0 {
		text += ", stopped " + cli.Clean(strings.Join(stoppedReplicas(s), ","))
	}
	return text
}

func newShardMove(std cli.Stdio) *cobra.Command {
	var shard uint64
	c := cli.Order(std, "move SHARD NODE", "Transfer the leadership of a shard to a node", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		return fmt.Sprintf("shard %d is led by %s", shard, args[1]), s.MoveShard(ctx, uint32(shard), args[1])
	})
	cli.Before(c, func(args []string) (err error) {
		if shard, err = strconv.ParseUint(args[0], 10, 32); err != nil {
			return cli.Usagef("%q is not a shard's number", args[0])
		}
		return nil
	})
	return c
}

// votersOf returns the nodes that vote in a shard, and the nodes whose vote
// is lost with their disk but still counts for the majority.
func votersOf(s *clusterv1.Shard) string {
	names := slices.Clone(s.GetVoters())
	for _, node := range s.GetLostVoters() {
		names = append(names, node+":lost")
	}
	return strings.Join(names, ",")
}
