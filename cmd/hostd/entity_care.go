package main

import (
	"context"
	"fmt"
	"io"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

func newEntityClear(std stdio) *cobra.Command {
	var r *remote
	c := leaf("clear TYPE ID", "Forget an entity's faults; a parked one runs again at its next command", 2, 2, func(ctx context.Context, _ *cobra.Command, args []string) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		c.Close()
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		_, err = r.services().entities.ClearFaults(ctx, connect.NewRequest(&entityv1.ClearFaultsRequest{EntityType: args[0], EntityId: args[1]}))
		if err != nil {
			return fmt.Errorf("clear: %w", publicError(err))
		}
		fmt.Fprintln(std.err, "cleared")
		return nil
	})
	r = addRemote(c)
	return c
}

func newEntitySkipTimer(std stdio) *cobra.Command {
	var r *remote
	var out *output
	var name named
	c := leaf("skip-timer TYPE ID TIMER", "Cancel a timer, when its command fails again and again", 3, 3, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		if err := name.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		c.Close()
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		res, err := r.services().entities.SkipTimer(ctx, connect.NewRequest(&entityv1.SkipTimerRequest{
			EntityType: args[0], EntityId: args[1], Timer: args[2], CommandId: name.id, FirstAttemptAgeMs: name.ageMs(),
		}))
		if err != nil {
			return fmt.Errorf("skip-timer: %w", publicError(err))
		}
		v := struct {
			Sequence  uint64 `json:"sequence"`
			CommandID string `json:"commandId"`
		}{res.Msg.GetSequence(), name.id}
		return out.print(v, func(w io.Writer) { fmt.Fprintf(w, "skipped at sequence %d\n", v.Sequence) })
	})
	addNamed(c, &name, "request")
	r, out = addRemote(c), addOutput(c, std)
	return c
}
