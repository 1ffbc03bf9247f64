package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/host"
)

func newRecover(std stdio) *cobra.Command {
	var accept, rejoin bool
	c := leaf("recover DIR --rejoin | --accept-loss", "Make a stopped node with damaged data usable again", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		switch {
		case accept && rejoin:
			return usagef("--rejoin gets what was lost from other nodes, --accept-loss gives it up: choose one")
		case rejoin:
			return rejoinNode(std, args[0])
		case accept:
			return acceptLoss(ctx, std, args[0])
		}
		return usagef("say what shall be done: --rejoin rebuilds the node from the others of its cluster; --accept-loss is for a lone node "+
			"and gives up what was acknowledged behind the damage, so keep a copy of %s first", args[0])
	})
	c.Flags().BoolVar(&accept, "accept-loss", false, "give up acknowledged commands that are behind the damage")
	c.Flags().BoolVar(&rejoin, "rejoin", false, "put the journal aside, so that the node joins its cluster anew and is rebuilt from the others")
	c.Long = "With --rejoin, for a node of several: moves the journal aside, without deleting any of it, and gives the node a new disk id. When it is then started " +
		"with its seeds, the cluster gives up its old replicas and builds new ones. Delete the directory damaged-TIME when the node is up again.\n\n" +
		"With --accept-loss, for a node that has no peers to be rebuilt from: cuts the write-ahead log at its first damage and takes the store back to what is left of " +
		"the log. Restoring a backup may lose less."
	return c
}

func rejoinNode(std stdio, dir string) error {
	if err := host.Rejoin(dir, time.Now(), std.out); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	return nil
}

func acceptLoss(ctx context.Context, std stdio, dir string) error {
	err := host.AcceptLoss(ctx, dir, std.out)
	if errors.Is(err, host.ErrBeyondRecovery) {
		return hint(fmt.Errorf("recover: %w", err), "The files as they were end in .lost; hostd verify lists what does not hold. A node of several is rebuilt with --rejoin.")
	}
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	return nil
}
