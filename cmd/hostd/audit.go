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
	return cli.Group("audit", "Verify nodes' audit logs", newAuditVerify(std))
}

func newAuditVerify(std cli.Stdio) *cobra.Command {
	var head, key string
	var out *cli.Output
	c := cli.Leaf("verify FILE", "Verify that no line of an audit log was changed or removed", 1, 1, func(_ context.Context, _ *cobra.Command, args []string) error {
		report, err := audit.Verify(args[0], head, key)
		var fault *audit.Fault
		switch {
		case errors.As(err, &fault):
			return cli.Hint(err, "The log is intact up to that line. Something other than the node changed it after that, or the disk is faulty.")
		case errors.Is(err, os.ErrNotExist):
			return cli.Hint(err, "Give the newest file of the log, which audit-file sets: audit/audit.log in the data directory by default.")
		case err != nil:
			return err
		}
		return out.Print(report, func(w io.Writer) {
			fmt.Fprintf(w, "%d lines in %d files, %s to %s\n", report.Lines, report.Files, report.First.Format(time.RFC3339), report.Last.Format(time.RFC3339))
			if report.From != "" {
				fmt.Fprintln(w, "log rotation has removed the first lines")
			}
			if report.Torn > 0 || report.Lost > 0 {
				fmt.Fprintf(w, "%d lines are incomplete because of a crash or a full disk, and %d could not be written\n", report.Torn, report.Lost)
			}
			if report.Checkpoints > 0 {
				fmt.Fprintf(w, "%d checkpoints, the last at %s, followed by %d lines\nkey %s\n", report.Checkpoints, report.Signed.Format(time.RFC3339), report.Unsigned, report.Key)
			}
			fmt.Fprintf(w, "head %s\n", report.Head)
		})
	})
	out = cli.AddOutput(c, std)
	c.Flags().StringVar(&head, "head", "", "head `hash` that an earlier run printed; fail if the log no longer contains its line")
	c.Flags().StringVar(&key, "key", "", "public `key` that an earlier run printed; fail if a checkpoint is missing or signed with a different key")
	c.Long = "Reads an audit log, oldest rotated file first, and checks that each line contains the SHA-256 of the previous line. " +
		"It changes nothing, and the node may be running. Somebody who can write the file can forge a whole chain, so " +
		"store the printed head and key somewhere else and pass them to the next run with --head and --key."
	return c
}
