package cases

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/guest"
)

// DefaultFile is the case file of a project.
const DefaultFile = "cases.yaml"

// NewCommand returns 'hostd test'. build builds the project in a directory and
// returns its module.
func NewCommand(std cli.Stdio, build func(ctx context.Context, dir string) ([]byte, error)) *cobra.Command {
	var out *cli.Output
	var match string
	c := cli.Leaf("test [DIR|FILE.wasm] [CASES.yaml ...]", "Run the test cases of a project or a module; needs no node", 0, -1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		chosen, err := regexp.Compile(match)
		if err != nil {
			return cli.Usagef("--run: %v", err)
		}
		subject, files := arguments(args)
		all, err := read(files)
		if err != nil {
			return cli.Hint(err, "docs/guide/testing.md describes the format of test cases.")
		}
		var wasm []byte
		if strings.HasSuffix(subject, ".wasm") {
			wasm, err = cli.ReadModule(subject)
		} else {
			wasm, err = build(ctx, subject)
		}
		if err != nil {
			return err
		}
		var selected []Case
		for _, c := range all {
			if chosen.MatchString(c.Name) {
				selected = append(selected, c)
			}
		}
		if len(selected) == 0 {
			return cli.Usagef("no case has a name that matches %q", match)
		}
		failed, err := runAll(ctx, wasm, selected, func(r Result) error { return out.Line(r, text(r)) })
		switch {
		case err != nil:
			return err
		case failed > 0:
			return fmt.Errorf("%d of %d cases failed", failed, len(selected))
		}
		fmt.Fprintf(std.Err, "%d cases passed\n", len(selected))
		return nil
	})
	c.Long = "Runs test cases on the same module that nodes run. A case gives some events, sends a command, and expects events, a reply and a state. " +
		"It builds a project first, whose cases are in cases.yaml by default. It also compares each state with a replay of its events and with a load of its snapshot. " +
		"It exits with 0 if all cases pass, with 1 if one fails or cannot run, and with 2 if the command line is wrong."
	c.Flags().StringVar(&match, "run", "", "run only cases whose names match this regular `expression`")
	out = cli.AddOutput(c, std)
	return c
}

// arguments separates the module or the project from the case files.
func arguments(args []string) (subject string, files []string) {
	subject = "."
	if len(args) > 0 && !isCases(args[0]) {
		subject, args = args[0], args[1:]
	}
	if files = args; len(files) > 0 {
		return subject, files
	}
	dir := subject
	if strings.HasSuffix(subject, ".wasm") {
		dir = filepath.Dir(subject)
	}
	return subject, []string{filepath.Join(dir, DefaultFile)}
}

func isCases(arg string) bool {
	return strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml")
}

func read(files []string) (all []Case, err error) {
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		some, err := Parse(file, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// runAll runs cases and passes each result to tell.
func runAll(ctx context.Context, wasm []byte, all []Case, tell func(Result) error) (failed int, err error) {
	e, err := guest.New(ctx, guest.Options{TellFaults: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	m, err := e.Compile(ctx, sha256.Sum256(wasm), wasm)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := guest.CheckSchemas(m.Manifest()); err != nil {
		return 0, err
	}
	for i := range all {
		if err := ctx.Err(); err != nil {
			return failed, err
		}
		r, err := Run(ctx, m, e.Limits(), &all[i])
		if err != nil {
			return failed, err
		}
		if !r.Passed {
			failed++
		}
		if err := tell(r); err != nil {
			return failed, err
		}
	}
	return failed, nil
}

// text formats a result for people.
func text(r Result) string {
	if r.Passed {
		return "ok      " + cli.Clean(r.Name)
	}
	lines := []string{fmt.Sprintf("FAILED  %s (%s:%d)", cli.Clean(r.Name), cli.Clean(r.File), r.Line)}
	for _, f := range r.Failures {
		for l := range strings.SplitSeq(f, "\n") {
			lines = append(lines, "        "+cli.Clean(l))
		}
	}
	for _, l := range r.Log {
		lines = append(lines, "        guest: "+cli.Quote(l))
	}
	return strings.Join(lines, "\n")
}
