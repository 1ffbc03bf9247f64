package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/offline"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// recovery holds the flags of recover.
type recovery struct {
	accept, rejoin, inspect, rebuild, renew bool
	unsafe                                  []uint
	metadataLost, yes                       bool
	out                                     string
	from                                    []string
}

func newRecover(std cli.Stdio) *cobra.Command {
	var r recovery
	c := cli.Leaf("recover DIR --rejoin | --accept-loss | --inspect | --rebuild-metadata --from FILE... | --rejoin-metadata | --unsafe-shard N...", "Repair the data of a stopped node", 1, -1,
		func(ctx context.Context, _ *cobra.Command, args []string) error { return r.run(ctx, std, args) })
	c.Flags().BoolVar(&r.accept, "accept-loss", false, "truncate the write-ahead log at its first damage and lose acknowledged commands after it")
	c.Flags().BoolVar(&r.rejoin, "rejoin", false, "move the journal aside, so that the node joins its cluster again and is rebuilt from other nodes")
	c.Flags().BoolVar(&r.inspect, "inspect", false, "write the node's records of its replicas and its copy of the metadata to the file of --out")
	c.Flags().BoolVar(&r.rebuild, "rebuild-metadata", false, "create the metadata shard again on this node, from the --inspect files of all remaining nodes")
	c.Flags().BoolVar(&r.renew, "rejoin-metadata", false, "drop the node's replica of the metadata shard after the shard was rebuilt on a different node")
	c.Flags().UintSliceVar(&r.unsafe, "unsafe-shard", nil, "LOSES DATA: continue `shard`, whose majority is lost permanently, with only this node's replica; may be repeated")
	c.Flags().BoolVar(&r.metadataLost, "metadata-lost", false, "with --unsafe-shard: the metadata shard has lost its majority too, so the remaining nodes are unknown")
	c.Flags().BoolVar(&r.yes, "yes", false, "with --unsafe-shard: make the change instead of only printing what would be lost")
	c.Flags().StringVar(&r.out, "out", "", "with --inspect: `file` to write")
	c.Flags().StringSliceVar(&r.from, "from", nil, "with --rebuild-metadata: `file` that --inspect wrote; may be repeated, and more files may follow as arguments")
	c.Long = "--rejoin is for a node of a larger cluster. It moves the journal aside without deleting it and gives the node a new disk id. When the node is started " +
		"with its seeds, the cluster drops its old replicas and builds new ones. Delete the directory damaged-TIME after the node is up again.\n\n" +
		"--accept-loss is for a node that has no peers to be rebuilt from. It truncates the write-ahead log at its first damage and resets the store to what is left of " +
		"the log. Restoring a backup may lose less.\n\n" +
		"If the metadata shard is damaged or has lost its majority permanently, stop all nodes. Run --inspect --out FILE on every remaining node, " +
		"then --rebuild-metadata --from FILE... on one of them, and --rejoin-metadata on all others. Then start the first node, and the others with their seeds.\n\n" +
		"--unsafe-shard N is for a data shard that has lost a majority of its disks permanently. It makes the replica of this node the only one. Data that only the other replicas had is lost, " +
		"acknowledged or not, and it is unknown how much that is. Run it without --yes on each remaining node, and choose the node with the highest term, then the highest index. " +
		"Never start a node with the data directory of a dropped replica again."
	return c
}

func (r *recovery) run(ctx context.Context, std cli.Stdio, args []string) error {
	asked := 0
	for _, flag := range []bool{r.accept, r.rejoin, r.inspect, r.rebuild, r.renew, len(r.unsafe) > 0} {
		if flag {
			asked++
		}
	}
	dir, files := args[0], append(r.from, args[1:]...)
	switch {
	case r.accept && r.rejoin:
		return cli.Usagef("--rejoin copies the lost data from other nodes, --accept-loss abandons it: set only one of them")
	case asked == 0:
		return cli.Usagef("set an action: --rejoin rebuilds the node from other nodes of its cluster; --accept-loss is for a single node "+
			"and loses acknowledged commands after the damage, so copy %s first", dir)
	case asked > 1:
		return cli.Usagef("these flags are separate steps: set only one of them")
	case len(files) > 0 && !r.rebuild:
		return cli.Usagef("only --rebuild-metadata accepts files")
	case r.inspect != (r.out != ""):
		return cli.Usagef("--inspect needs --out FILE, and vice versa")
	case len(r.unsafe) == 0 && (r.metadataLost || r.yes):
		return cli.Usagef("--metadata-lost and --yes need --unsafe-shard")
	case r.rebuild && len(r.from) == 0:
		return cli.Usagef("--rebuild-metadata needs the files of all nodes: --from FILE...")
	}
	var err error
	switch {
	case r.rejoin:
		err = offline.Rejoin(dir, time.Now(), std.Out)
	case r.accept:
		err = offline.AcceptLoss(ctx, dir, std.Out)
	case len(r.unsafe) > 0:
		err = r.recoverUnsafely(ctx, dir, std)
	case r.inspect:
		err = offline.Inspect(ctx, dir, r.out, std.Out)
	case r.rebuild:
		err = offline.RebuildMetadata(dir, files, std.Out)
	default:
		err = offline.RejoinMetadata(dir, std.Out)
	}
	return explain(err)
}

func (r *recovery) recoverUnsafely(ctx context.Context, dir string, std cli.Stdio) error {
	u := offline.UnsafeRecovery{MetadataLost: r.metadataLost, Confirmed: r.yes, At: time.Now()}
	for _, shard := range r.unsafe {
		if shard > math.MaxUint32 {
			return cli.Usagef("shard %d does not exist", shard)
		}
		if s := sharding.ShardID(shard); !slices.Contains(u.Shards, s) {
			u.Shards = append(u.Shards, s)
		}
	}
	return offline.RecoverUnsafely(ctx, dir, u, std.Out)
}

// explain adds the next step to an error, if there is one.
func explain(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("recover: %w", err)
	switch {
	case errors.Is(err, offline.ErrBeyondRecovery):
		return cli.Hint(err, "The original files end in .lost; 'hostd verify' lists the damage. Rebuild a node of a cluster with --rejoin.")
	case errors.Is(err, offline.ErrUnconfirmed):
		return cli.Hint(err, "Data that only the abandoned replicas had is lost permanently. Repeat the command with --yes to accept that.")
	case errors.Is(err, meta.ErrConflict):
		return cli.Hint(err, "Nothing was changed. If a node and its disk will never return, run 'hostd node down NODE' while all other nodes are running, including this one.")
	case errors.Is(err, coordinator.ErrIncomplete):
		return cli.Hint(err, "Nothing was changed. Inspect the missing nodes too; data that only lost disks had can only be restored from a backup of all nodes.")
	case errors.Is(err, coordinator.ErrInconsistent):
		return cli.Hint(err, "Nothing was changed. Give one file for each node of the cluster, created while all nodes were stopped.")
	}
	return err
}
