package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// recorded is the position of an operation in an entity's history.
type recorded struct {
	Sequence  uint64 `json:"sequence"`
	CommandID string `json:"commandId"`
}

func newEntityPassivate(std cli.Stdio) *cobra.Command {
	return cli.Order(std, "passivate TYPE ID", "Passivate an entity: drop it from memory until its next command", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		_, err := cli.Unary(ctx, s, s.EntityService.PassivateEntity, &entityv1.PassivateEntityRequest{EntityType: args[0], EntityId: args[1]})
		return "passivated", err
	})
}

func newEntityDelete(std cli.Stdio) *cobra.Command {
	var name cli.Named
	c := cli.Ask(std, "delete TYPE ID", "Delete an entity and keep its history", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (recorded, error) {
		res, err := cli.Unary(ctx, s, s.EntityService.DeleteEntity, &entityv1.DeleteEntityRequest{
			EntityType: args[0], EntityId: args[1], CommandId: name.ID, FirstAttemptAge: name.Age(),
		})
		return recorded{res.GetSequence(), name.ID}, err
	}, func(w io.Writer, v recorded) { fmt.Fprintf(w, "deleted at sequence %d\n", v.Sequence) })
	cli.AddNamed(c, &name, "deletion")
	cli.AddConfirm(c, std, func(args []string) string {
		return fmt.Sprintf("Delete the entity %s of type %s?", cli.Clean(args[1]), cli.Clean(args[0]))
	})
	return c
}

func newEntityClear(std cli.Stdio) *cobra.Command {
	var all bool
	c := cli.Order(std, "clear TYPE [ID]", "Clear an entity's faults and release it from quarantine", 1, 2, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		cleared := 0
		for more := all; more; {
			res, err := cli.Unary(ctx, s, s.EntityService.ClearTypeFaults, &entityv1.ClearTypeFaultsRequest{EntityType: args[0], Limit: clearAtOnce})
			if err != nil {
				return "", err
			}
			cleared += int(res.GetCleared())
			more = res.GetMore()
		}
		if all {
			return fmt.Sprintf("cleared %d", cleared), nil
		}
		_, err := cli.Unary(ctx, s, s.EntityService.ClearFaults, &entityv1.ClearFaultsRequest{EntityType: args[0], EntityId: args[1]})
		return "cleared", err
	})
	cli.Before(c, func(args []string) error {
		if all == (len(args) == 2) {
			return cli.Usagef("give the ID of an entity, or --all for every quarantined entity of the type")
		}
		return nil
	})
	c.Flags().BoolVar(&all, "all", false, "clear all quarantined entities of the type, in all shards")
	return c
}

// clearAtOnce is how many entities one call clears, so that it ends within its
// timeout.
const clearAtOnce = 1000

func newEntitySkipTimer(std cli.Stdio) *cobra.Command {
	var name cli.Named
	c := cli.Ask(std, "skip-timer TYPE ID TIMER", "Cancel a timer whose command keeps failing", 3, 3, func(ctx context.Context, s *cli.Session, args []string) (recorded, error) {
		res, err := cli.Unary(ctx, s, s.EntityService.SkipTimer, &entityv1.SkipTimerRequest{
			EntityType: args[0], EntityId: args[1], Timer: args[2], CommandId: name.ID, FirstAttemptAge: name.Age(),
		})
		return recorded{res.GetSequence(), name.ID}, err
	}, func(w io.Writer, v recorded) { fmt.Fprintf(w, "skipped at sequence %d\n", v.Sequence) })
	cli.AddNamed(c, &name, "request")
	return c
}
