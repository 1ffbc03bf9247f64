// Package cli is what the commands of the program share: how a command line is
// read, how a node is called, and how what it answers is printed, data to
// standard output and talk to standard error. It knows no noun of the program.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
)

// Exit codes.
const (
	ExitDone   = 0
	ExitFailed = 1 // the operation failed
	ExitUsage  = 2 // the command line is wrong
)

// Stdio is where a command reads and writes.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// UsageError is a fault of the command line itself.
type UsageError struct{ err error }

func (e *UsageError) Error() string { return e.err.Error() }
func (e *UsageError) Unwrap() error { return e.err }

// Usage makes an error a fault of the command line.
func Usage(err error) error { return &UsageError{err} }

// Usagef describes a fault of the command line.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// failedError is a failure of an operation that was asked for rightly. Any
// other error comes from reading the command line.
type failedError struct{ err error }

func (e *failedError) Error() string { return e.err.Error() }
func (e *failedError) Unwrap() error { return e.err }

// ExitError ends the program with a code that another process reads, and
// without a word.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// Canceled reports that a failure is nothing but the end of the context.
func Canceled(err error) bool {
	return errors.Is(err, context.Canceled) || client.CodeOf(err) == connect.CodeCanceled
}

// Run executes one command line of a root command and returns the exit code. It
// returns soon after ctx ends.
func Run(ctx context.Context, root *cobra.Command, args []string, std Stdio) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(std.In)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	root.SetArgs(args)
	for i, arg := range args {
		if !utf8.ValidString(arg) {
			report(std, root, fmt.Errorf("argument %d, %.64q, is not UTF-8", i+1, arg), usageCode, "")
			return ExitUsage
		}
	}
	command, err := root.ExecuteContextC(ctx)
	var usage *UsageError
	var failed *failedError
	var exit *ExitError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &usage) || !errors.As(err, &failed):
		report(std, command, err, usageCode, fmt.Sprintf("Run '%s --help' for usage.", command.CommandPath()))
		return ExitUsage
	case errors.As(err, &exit):
		return exit.Code
	}
	if code := codeOf(err); ctx.Err() != nil && Canceled(err) {
		report(std, command, errors.New("interrupted"), code, NextStep(err))
	} else {
		report(std, command, err, code, NextStep(err))
	}
	return ExitFailed
}

// Group makes a command that only has commands below it.
func Group(use, short string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			near := ""
			if names := c.SuggestionsFor(args[0]); len(names) > 0 {
				near = fmt.Sprintf(": did you mean %s?", strings.Join(names, " or "))
			}
			return Usagef("%s has no command %q%s", c.CommandPath(), args[0], near)
		}
		if err := c.Help(); err != nil {
			return err
		}
		return Usagef("%s needs a command", c.CommandPath())
	}}
	c.SuggestionsMinimumDistance = 2
	c.AddCommand(below...)
	for _, b := range below {
		if b.HasSubCommands() { // a misspelt verb is what is wrong, not its flags
			b.FParseErrWhitelist.UnknownFlags = true
			b.Flags().StringP("output", "o", "table", "`format` of failures")
			b.Flags().Lookup("output").Hidden = true
		}
	}
	return c
}

// Leaf makes a command that takes from least to most arguments; most below
// zero is any number. What do returns is a failure of the operation unless it
// is a UsageError.
func Leaf(use, short string, least, most int, do func(ctx context.Context, c *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, DisableFlagsInUseLine: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < least || most >= 0 && len(args) > most {
				return Usagef("want '%s'", c.UseLine())
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

// Before has a check run before the command does anything: what it returns is a
// fault of the command line. Several run in the order in which they were given.
func Before(c *cobra.Command, check func(args []string) error) {
	earlier := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if earlier != nil {
			if err := earlier(c, args); err != nil {
				return err
			}
		}
		return check(args)
	}
}

// First returns the first argument, or nothing.
func First(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
