package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

func newShard(std stdio) *cobra.Command {
	return group("shard", "Look at shards and move them", newShardList(std), newShardMove(std))
}

type shardView struct {
	ShardID      uint32   `json:"shardId"`
	Leader       string   `json:"leader"`
	Term         uint64   `json:"term"`
	Voters       []string `json:"voters"`
	Learners     []string `json:"learners"`
	EntityCount  uint64   `json:"entityCount"`
	AppliedIndex uint64   `json:"appliedIndex"`
	Bytes        uint64   `json:"bytes"`
}

func viewShards(shards []*clusterv1.Shard) []shardView {
	out := []shardView{}
	for _, s := range shards {
		out = append(out, shardView{s.GetShardId(), s.GetLeader(), s.GetTerm(), append([]string{}, s.GetVoters()...),
			append([]string{}, s.GetLearners()...), s.GetEntityCount(), s.GetAppliedIndex(), s.GetBytes()})
	}
	return out
}

func newShardList(std stdio) *cobra.Command {
	return clusterCommand(std, "ls", "List the shards: who leads them and how far they are", func(ctx context.Context, r *remote, out *output) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		shards, err := c.Shards(ctx)
		if err != nil {
			return err
		}
		v := struct {
			Shards []shardView `json:"shards"`
		}{viewShards(shards)}
		return out.print(v, func(w io.Writer) {
			table(w, "SHARD\tLEADER\tTERM\tVOTERS\tLEARNERS\tENTITIES\tAPPLIED\tBYTES", func(row func(...any)) {
				for _, s := range v.Shards {
					row(s.ShardID, s.Leader, s.Term, strings.Join(s.Voters, ","), strings.Join(s.Learners, ","), s.EntityCount, s.AppliedIndex, s.Bytes)
				}
			})
		})
	})
}

func newShardMove(std stdio) *cobra.Command {
	var r *remote
	c := leaf("move SHARD NODE", "Move a shard's leadership to a node", 2, 2, func(ctx context.Context, _ *cobra.Command, args []string) error {
		shard, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil {
			return usagef("%q is not a shard's number", args[0])
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.MoveShard(ctx, uint32(shard), args[1]); err != nil {
			return fmt.Errorf("move: %w", err)
		}
		fmt.Fprintf(std.err, "shard %d is led by %s\n", shard, args[1])
		return nil
	})
	r = addRemote(c)
	return c
}
