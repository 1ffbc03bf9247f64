package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/host"
)

func newRecover(std stdio) *cobra.Command {
	var accept bool
	c := leaf("recover DIR --accept-loss", "Make a lone node's damaged data usable again, without what was damaged", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if !accept {
			return usagef("recover gives up what was acknowledged behind the damage: say so with --accept-loss, and keep a copy of %s first", args[0])
		}
		err := host.AcceptLoss(ctx, args[0], std.out)
		if errors.Is(err, host.ErrBeyondRecovery) {
			return hint(fmt.Errorf("recover: %w", err), "The files as they were end in .lost; hostd verify lists what does not hold.")
		}
		if err != nil {
			return fmt.Errorf("recover: %w", err)
		}
		return nil
	})
	c.Flags().BoolVar(&accept, "accept-loss", false, "give up acknowledged commands that are behind the damage")
	c.Long = "Cuts the write-ahead log of a stopped node at its first damage and takes the store back to what is left of the log. " +
		"It is for a node that has no peers to be rebuilt from; restoring a backup may lose less."
	return c
}
