package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/sharding/coordinator"
)

// recovery is what the flags of recover ask for.
type recovery struct {
	accept, rejoin, inspect, rebuild, renew bool
	out                                     string
	from                                    []string
}

func newRecover(std stdio) *cobra.Command {
	var r recovery
	c := leaf("recover DIR --rejoin | --accept-loss | --inspect | --rebuild-metadata --from FILE... | --rejoin-metadata", "Make a stopped node with damaged data usable again", 1, -1,
		func(ctx context.Context, _ *cobra.Command, args []string) error { return r.run(ctx, std, args) })
	c.Flags().BoolVar(&r.accept, "accept-loss", false, "give up acknowledged commands that are behind the damage")
	c.Flags().BoolVar(&r.rejoin, "rejoin", false, "put the journal aside, so that the node joins its cluster anew and is rebuilt from the others")
	c.Flags().BoolVar(&r.inspect, "inspect", false, "write what the node records of its replicas and of the metadata to a file, see --out")
	c.Flags().BoolVar(&r.rebuild, "rebuild-metadata", false, "begin the metadata shard anew on this node, from the files of --inspect of all nodes that are left")
	c.Flags().BoolVar(&r.renew, "rejoin-metadata", false, "give the node's replica of the metadata shard up, for metadata that was rebuilt on another node")
	c.Flags().StringVar(&r.out, "out", "", "with --inspect: the file to write")
	c.Flags().StringSliceVar(&r.from, "from", nil, "with --rebuild-metadata: a file of --inspect; once for each node, or more files behind it")
	c.Long = "With --rejoin, for a node of several: moves the journal aside, without deleting any of it, and gives the node a new disk id. When it is then started " +
		"with its seeds, the cluster gives up its old replicas and builds new ones. Delete the directory damaged-TIME when the node is up again.\n\n" +
		"With --accept-loss, for a node that has no peers to be rebuilt from: cuts the write-ahead log at its first damage and takes the store back to what is left of " +
		"the log. Restoring a backup may lose less.\n\n" +
		"For a cluster whose metadata shard is damaged or has lost its majority for good, with all nodes stopped: --inspect --out FILE on every node that is left, " +
		"then --rebuild-metadata --from FILE... on one of them, and --rejoin-metadata on all others; then start the first one, and the others with their seeds."
	return c
}

func (r *recovery) run(ctx context.Context, std stdio, args []string) error {
	asked := 0
	for _, flag := range []bool{r.accept, r.rejoin, r.inspect, r.rebuild, r.renew} {
		if flag {
			asked++
		}
	}
	dir, files := args[0], append(r.from, args[1:]...)
	switch {
	case r.accept && r.rejoin:
		return usagef("--rejoin gets what was lost from other nodes, --accept-loss gives it up: choose one")
	case asked == 0:
		return usagef("say what shall be done: --rejoin rebuilds the node from the others of its cluster; --accept-loss is for a lone node "+
			"and gives up what was acknowledged behind the damage, so keep a copy of %s first", dir)
	case asked > 1:
		return usagef("these are steps of their own: one flag at a time")
	case len(files) > 0 && !r.rebuild:
		return usagef("files belong to --rebuild-metadata")
	case r.inspect != (r.out != ""):
		return usagef("--inspect and --out FILE go together")
	case r.rebuild && len(r.from) == 0:
		return usagef("--rebuild-metadata takes the files of all nodes: --from FILE...")
	}
	var err error
	switch {
	case r.rejoin:
		err = host.Rejoin(dir, time.Now(), std.out)
	case r.accept:
		err = host.AcceptLoss(ctx, dir, std.out)
	case r.inspect:
		err = host.Inspect(ctx, dir, r.out, std.out)
	case r.rebuild:
		err = host.RebuildMetadata(dir, files, std.out)
	default:
		err = host.RejoinMetadata(dir, std.out)
	}
	return explain(err)
}

// explain says what to do next where an error has a way out.
func explain(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("recover: %w", err)
	switch {
	case errors.Is(err, host.ErrBeyondRecovery):
		return hint(err, "The files as they were end in .lost; hostd verify lists what does not hold. A node of several is rebuilt with --rejoin.")
	case errors.Is(err, coordinator.ErrIncomplete):
		return hint(err, "Nothing was changed. Inspect the nodes that are missing too; what only lost disks had can only come from a backup of all nodes.")
	case errors.Is(err, coordinator.ErrInconsistent):
		return hint(err, "Nothing was changed. Give one file for each node of one cluster, made while all nodes were stopped.")
	}
	return err
}
