package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/offline"
)

func newVerify(std cli.Stdio) *cobra.Command {
	c := cli.Leaf("verify DIR", "Verify every checksum and hash chain in a stopped node's data directory", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if info, err := os.Stat(args[0]); err != nil || !info.IsDir() {
			return cli.Hint(fmt.Errorf("%s is not a directory", args[0]), "Give the data directory of a node, the one that its --data-dir names.")
		}
		faults, err := offline.Verify(ctx, args[0], std.Out)
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		if faults > 0 {
			return cli.Hint(fmt.Errorf("%d faults", faults),
				"Copy the directory first. Then restore a backup, or drop the data after the damage with 'hostd recover DIR --accept-loss'.")
		}
		fmt.Fprintln(std.Err, "no faults")
		return nil
	})
	c.Long = "Reads all data of a stopped node, prints its findings and changes nothing. " +
		"It exits with 1 if a checksum, a length or a hash chain is wrong."
	return c
}
