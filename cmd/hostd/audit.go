package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/audit"
)

func newAudit(std cli.Stdio) *cobra.Command {
	return cli.Group("audit", "Check the account that nodes keep of their callers", newAuditVerify(std))
}

func newAuditVerify(std cli.Stdio) *cobra.Command {
	var head, key string
	var out *cli.Output
	c := cli.Leaf("verify FILE", "Check that no line of an audit log was changed or taken out", 1, 1, func(_ context.Context, _ *cobra.Command, args []string) error {
		report, err := audit.Verify(args[0], head, key)
		var fault *audit.Fault
		switch {
		case errors.As(err, &fault):
			return cli.Hint(err, "The log holds up to there. What follows was changed by another than the node, or by a faulty disk.")
		case errors.Is(err, os.ErrNotExist):
			return cli.Hint(err, "Give the newest file of the log, the one that audit-file names: audit/audit.log in the data directory unless it is given.")
		case err != nil:
			return err
		}
		return out.Print(report, func(w io.Writer) {
			fmt.Fprintf(w, "%d lines in %d files, %s to %s\n", report.Lines, report.Files, report.First.Format(time.RFC3339), report.Last.Format(time.RFC3339))
			if report.From != "" {
				fmt.Fprintln(w, "the first lines are gone by rotation")
			}
			if report.Torn > 0 || report.Lost > 0 {
				fmt.Fprintf(w, "%d lines were cut by a crash or a full disk, and %d could not be written\n", report.Torn, report.Lost)
			}
			if report.Checkpoints > 0 {
				fmt.Fprintf(w, "%d checkpoints, the last of %s, with %d lines behind it\nkey %s\n", report.Checkpoints, report.Signed.Format(time.RFC3339), report.Unsigned, report.Key)
			}
			fmt.Fprintf(w, "head %s\n", report.Head)
		})
	})
	out = cli.AddOutput(c, std)
	c.Flags().StringVar(&head, "head", "", "`hash` that an earlier run printed as the head; its line must be there still")
	c.Flags().StringVar(&key, "key", "", "`key` that an earlier run printed; all checkpoints must be signed with it, and none be missing between lines")
	c.Long = "Reads an audit log, its rotated files first, and checks that each line names the one before it by its SHA-256. " +
		"It changes nothing, and the node may run meanwhile. Who can write the file can make a new chain: " +
		"keep the head and the key that are printed elsewhere, and give them to the next run with --head and --key."
	return c
}
