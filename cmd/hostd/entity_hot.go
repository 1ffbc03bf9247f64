package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

type hotView struct {
	EntityType        string  `json:"entityType"`
	EntityID          string  `json:"entityId"`
	ShardID           uint32  `json:"shardId"`
	NodeID            string  `json:"nodeId"`
	CommandsPerSecond float64 `json:"commandsPerSecond"`
	OverPerSecond     float64 `json:"overPerSecond"`
	FuelPerSecond     float64 `json:"fuelPerSecond"`
	FuelShare         float64 `json:"fuelShare"`
}

func newEntityHot(std stdio) *cobra.Command {
	var r *remote
	var out *output
	var limit uint32
	c := leaf("hot", "List the entities that are asked for most, over the last 10 to 20 seconds", 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		res, err := r.services().entities.HotEntities(ctx, connect.NewRequest(&entityv1.HotEntitiesRequest{Limit: limit}))
		if err != nil {
			return fmt.Errorf("hot: %w", publicError(err))
		}
		return printHot(std, out, res.Msg)
	})
	c.Flags().Uint32Var(&limit, "limit", 20, "at most this `many`, up to 1,000")
	r, out = addRemote(c), addOutput(c, std)
	return c
}

func printHot(std stdio, out *output, res *entityv1.HotEntitiesResponse) error {
	v := struct {
		Entities     []hotView `json:"entities"`
		MissingNodes []string  `json:"missingNodes"`
	}{[]hotView{}, append([]string{}, res.GetMissingNodes()...)}
	for _, e := range res.GetEntities() {
		v.Entities = append(v.Entities, hotView{
			e.GetEntityType(), e.GetEntityId(), e.GetShardId(), e.GetNodeId(),
			e.GetCommandsPerSecond(), e.GetOverPerSecond(), e.GetFuelPerSecond(), e.GetFuelShare(),
		})
	}
	err := out.print(v, func(w io.Writer) {
		table(w, "TYPE\tID\tSHARD\tNODE\tCOMMANDS/S\tFUEL/S\tFUEL OF NODE", func(row func(...any)) {
			for _, e := range v.Entities {
				row(e.EntityType, clean(e.EntityID), e.ShardID, e.NodeID, fmt.Sprintf("%.1f", e.CommandsPerSecond),
					fmt.Sprintf("%.0f", e.FuelPerSecond), fmt.Sprintf("%.1f %%", 100*e.FuelShare))
			}
		})
	})
	if len(v.MissingNodes) > 0 {
		fmt.Fprintf(std.err, "these nodes did not answer: %s\n", strings.Join(v.MissingNodes, ", "))
	}
	return err
}
