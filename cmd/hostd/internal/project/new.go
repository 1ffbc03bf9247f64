// Package project creates and builds guest projects, which a user does before
// there is a node. It fetches nothing itself, although a language's tools may.
// It starts no goroutine.
package project

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild"
)

// namePattern matches the valid names of projects: the name becomes the name of
// a module and of a package.
var namePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// NewNew returns the command 'hostd new'.
func NewNew(std cli.Stdio) *cobra.Command {
	var lang, template string
	c := cli.Leaf("new NAME", "Create a guest project with sources, a test and the SDK", 1, 1, func(_ context.Context, _ *cobra.Command, args []string) error {
		l, err := guestbuild.ByName(lang)
		if err != nil {
			return err
		}
		dir, name, err := projectName(args[0])
		if err != nil {
			return err
		}
		files, err := contents(l.Name, template, name)
		if err != nil {
			return err
		}
		if err := write(dir, files); err != nil {
			return err
		}
		fmt.Fprintf(std.Err, "%s has %d files; its README.md has the next steps:\n", args[0], len(files))
		fmt.Fprint(std.Out, steps(args[0], files["README.md"]))
		return nil
	})
	c.Long = "Creates the directory NAME with the sources of a first entity type, or of a workflow type. It downloads nothing: the sources of the SDK come with this program, " +
		"in the directory hostd-sdk, and one line of the project refers to them. It does not touch a directory that is not empty."
	c.Flags().StringVar(&lang, "lang", "go", "`language` of the project: "+guestbuild.Names())
	c.Flags().StringVar(&template, "template", entityTemplate, "`template` of the sources: entity, or workflow for ts")
	return c
}

// projectName returns a project's directory and name from the argument, whose last
// element is the name.
func projectName(arg string) (dir, name string, err error) {
	dir, err = filepath.Abs(arg)
	if err != nil {
		return "", "", err
	}
	name = filepath.Base(dir)
	if !namePattern.MatchString(name) {
		return "", "", cli.Usagef("%q is not a project name: use at most 63 lower-case letters, digits and hyphens, starting with a letter", name)
	}
	return dir, name, nil
}

// write writes files below a directory that does not exist or is empty. If it
// fails, it removes the files again.
func write(dir string, files map[string][]byte) (err error) {
	entries, err := os.ReadDir(dir)
	made := errors.Is(err, os.ErrNotExist)
	switch {
	case made:
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	case err != nil:
		return err
	case len(entries) > 0:
		return cli.Hint(fmt.Errorf("%s exists and is not empty", dir), "Choose a different name. Nothing was written.")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, remove(dir, files, made))
		}
	}()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the files that write wrote, and the directory if write created
// it.
func remove(dir string, files map[string][]byte, made bool) error {
	if made {
		return os.RemoveAll(dir)
	}
	var faults []error
	for name := range files {
		first, _, _ := strings.Cut(name, "/")
		faults = append(faults, os.RemoveAll(filepath.Join(dir, first)))
	}
	return errors.Join(faults...)
}

// steps returns the commands in a project's README, to be run from its
// directory.
func steps(dir string, readme []byte) string {
	out := "    cd " + dir + "\n"
	for line := range strings.Lines(string(readme)) {
		if strings.HasPrefix(line, "    ") {
			out += line
		}
	}
	return out
}
