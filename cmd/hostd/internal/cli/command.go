// Package cli is shared by the commands of the program: it parses a command
// line, calls a node, and prints the answer. Data goes to standard output,
// messages go to standard error. It does not know the individual commands.
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
	ExitUsage  = 2 // the command line is invalid
)

// Stdio holds the standard streams of a command.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// UsageError is a fault of the command line itself.
type UsageError struct{ err error }

func (e *UsageError) Error() string { return e.err.Error() }
func (e *UsageError) Unwrap() error { return e.err }

// Usage marks an error as a fault of the command line.
func Usage(err error) error { return &UsageError{err} }

// Usagef returns a UsageError with a formatted text.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// failedError is the failure of an operation whose command line was valid. Any
// other error comes from parsing the command line.
type failedError struct{ err error }

func (e *failedError) Error() string { return e.err.Error() }
func (e *failedError) Unwrap() error { return e.err }

// ExitError ends the program with a code that another process reads, without
// printing anything.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// IsCanceled reports whether an error is only the end of the context.
func IsCanceled(err error) bool {
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
	if code := codeOf(err); ctx.Err() != nil && IsCanceled(err) {
		report(std, command, errors.New("interrupted"), code, nextStep(command, err))
	} else {
		report(std, command, err, code, nextStep(command, err))
	}
	return ExitFailed
}

// Group returns a command that only has subcommands.
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
		if b.HasSubCommands() { // report a misspelt verb instead of its flags
			b.FParseErrWhitelist.UnknownFlags = true
			b.Flags().StringP("output", "o", "table", "`format` of failures")
			b.Flags().Lookup("output").Hidden = true
		}
	}
	return c
}

// Leaf returns a command that accepts from least to most arguments; if most is
// negative, any number. An error of do is a failure of the operation unless it
// is a UsageError.
func Leaf(use, short string, least, most int, do func(ctx context.Context, c *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, DisableFlagsInUseLine: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < least || most >= 0 && len(args) > most {
				return Usagef("usage: '%s'", c.UseLine())
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

// Before adds a check that runs before the command does anything. An error of
// check is a fault of the command line. Checks run in the order in which they
// were added.
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

// First returns the first argument, or an empty string.
func First(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
