package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // the operation failed
	exitUsage  = 2 // the command line is wrong
)

// stdio is where a command reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// usageError is a fault of the command line itself.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// failedError is a failure of an operation that was asked for rightly. Any
// other error comes from reading the command line.
type failedError struct{ err error }

func (e *failedError) Error() string { return e.err.Error() }
func (e *failedError) Unwrap() error { return e.err }

// canceled reports that a failure is nothing but the end of the context.
func canceled(err error) bool {
	return errors.Is(err, context.Canceled) || client.CodeOf(err) == connect.CodeCanceled
}

// run executes one command line and returns the exit code. It returns soon
// after ctx ends.
func run(ctx context.Context, args []string, std stdio) int {
	root := newRoot(std)
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	var usage *usageError
	var failed *failedError
	var exit *exitError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage) || !errors.As(err, &failed):
		fmt.Fprintf(std.err, "hostd: %v\nRun '%s --help' for usage.\n", err, command.CommandPath())
		return exitUsage
	case errors.As(err, &exit):
		return exit.code
	}
	if ctx.Err() != nil && canceled(err) {
		fmt.Fprintln(std.err, "hostd: interrupted")
	} else {
		fmt.Fprintf(std.err, "hostd: %v\n", err)
	}
	if next := nextStep(err); next != "" {
		fmt.Fprintln(std.err, next)
	}
	return exitFailed
}

func newRoot(std stdio) *cobra.Command {
	root := group("hostd", "A runtime for entities written in WebAssembly",
		newVersion(std), newDev(std), newDemo(std), newServe(std),
		newModule(std), newEntity(std), newCluster(std), newShard(std), newNode(std), newSetting(std), newJournal(std),
		newBench(std), newVerify(std), newRecover(std), newEcho(std), newSpin(std), newCompile(std))
	root.Long = "hostd hosts entities: durable, event-sourced objects whose code is a WebAssembly module that you upload.\n\n" +
		"Start with 'hostd demo', or 'hostd dev' and then 'hostd module push FILE.wasm'."
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	return root
}

// group makes a command that only has commands below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("%s has no command %q", c.CommandPath(), args[0])
		}
		if err := c.Help(); err != nil {
			return err
		}
		return usagef("%s needs a command", c.CommandPath())
	}}
	c.AddCommand(below...)
	return c
}

// leaf makes a command that takes from least to most arguments; most below
// zero is any number. What do returns is a failure of the operation unless it
// is a usageError.
func leaf(use, short string, least, most int, do func(ctx context.Context, c *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, DisableFlagsInUseLine: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < least || most >= 0 && len(args) > most {
				return usagef("want '%s'", c.UseLine())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := do(c.Context(), c, args); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
}
