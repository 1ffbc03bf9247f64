package project

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/abi/abitest"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild"
	"github.com/hostd/hostd/cmd/hostd/internal/modulecheck"
	"github.com/hostd/hostd/host/files"
)

// NewBuild returns the command 'hostd build'.
func NewBuild(std cli.Stdio) *cobra.Command {
	var file string
	c := cli.Leaf("build [DIR] [-o FILE]", "Build a project into a module and check it with the conformance suite", 0, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		dir := "."
		if len(args) > 0 {
			dir = args[0]
		}
		to := file
		if to == "" {
			abs, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			to = filepath.Join(dir, filepath.Base(abs)+".wasm")
		}
		report, err := Build(ctx, dir, to, std.Err)
		if err != nil {
			return err
		}
		fmt.Fprintln(std.Out, to)
		fmt.Fprintln(std.Err, Summary(report))
		return nil
	})
	c.Long = "Detects the language of the project from its files (" + guestbuild.Names() + "), builds it with the language's own tools, " +
		"and checks the module as 'hostd module check' does. If a check fails, it writes no file."
	c.Flags().StringVarP(&file, "file", "o", "", "`file` to write; defaults to DIR/NAME.wasm with the name of the directory")
	return c
}

// Build builds the project in dir, checks the module and writes it to a file,
// which does not change if a step fails. The tools' output goes to log.
func Build(ctx context.Context, dir, to string, log io.Writer) (report modulecheck.Report, err error) {
	wasm, err := compile(ctx, dir, log)
	if err != nil {
		return report, err
	}
	report, err = modulecheck.Run(ctx, wasm, abitest.Options{Seed: 1})
	if err != nil {
		return report, cli.Hint(fmt.Errorf("%s: %w", dir, err), modulecheck.Next)
	}
	for _, c := range report.Checks {
		if c.Status == string(abitest.Failed) {
			return report, cli.Hint(fmt.Errorf("%s: the check %s of %s failed: %s", dir, c.Name, c.EntityType, c.Detail), modulecheck.Next)
		}
	}
	return report, files.Replace(to, wasm, 0o644)
}

// compile builds the project in dir and returns its module.
func compile(ctx context.Context, dir string, log io.Writer) (wasm []byte, err error) {
	l, err := guestbuild.Find(dir)
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "hostd-build-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	module := filepath.Join(scratch, "module.wasm")
	if err := l.Build(ctx, dir, module, log); err != nil {
		return nil, cli.Hint(fmt.Errorf("%s: %w", dir, err), nextOf(err))
	}
	return cli.ReadModule(module)
}

// nextOf returns the next step that an error suggests, or else the next step
// after a compiler error.
func nextOf(err error) string {
	var hinted *cli.HintedError
	if errors.As(err, &hinted) {
		return hinted.Next
	}
	return "The compiler's output is above."
}

// Summary describes the built module in one line.
func Summary(r modulecheck.Report) string {
	text := fmt.Sprintf("%s, %d bytes, from %s; %d checks passed", r.Name, r.SizeBytes, strings.Join(r.EntityTypes, ", "), r.Count(abitest.Passed))
	if skipped := r.Count(abitest.Skipped); skipped > 0 {
		text += fmt.Sprintf(", %d were skipped", skipped)
	}
	return text
}

// Builder returns a function that builds the project in a directory and returns
// its module without checking it. The tools' output goes to log.
func Builder(log io.Writer) func(ctx context.Context, dir string) ([]byte, error) {
	return func(ctx context.Context, dir string) ([]byte, error) { return compile(ctx, dir, log) }
}
