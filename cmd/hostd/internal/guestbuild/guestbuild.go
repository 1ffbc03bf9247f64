// Package guestbuild builds guest projects in any supported language. It has a
// subpackage for each language, which knows the language's tools; the error for
// a missing tool says how to install it. It starts no goroutine; the tools'
// processes end with the call.
package guestbuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild/assemblyscript"
	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild/c"
	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild/golang"
	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild/quickjs"
	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild/rust"
)

// A Language is a language of guest projects.
type Language struct {
	Name string // as in --lang
	// marks are files of which a project has at least one: patterns of names,
	// or "FILE:TEXT" for a file that contains a text.
	marks []string
	// Build builds the project in dir, and writes the module to the file out.
	// The tools' output goes to log.
	Build func(ctx context.Context, dir, out string, log io.Writer) error
	// Sources are the file name endings of a project's sources.
	Sources []string
}

// Languages are all known languages, in the order in which Find tries them.
var Languages = []Language{
	{Name: "go", marks: []string{"go.mod"}, Build: golang.Build, Sources: []string{".go", ".mod", ".sum"}},
	{Name: "rust", marks: []string{"Cargo.toml", "src/lib.rs", "*.rs"}, Build: rust.Build, Sources: []string{".rs"}},
	{Name: "c", marks: []string{"main.c", "*.c"}, Build: c.Build, Sources: []string{".c", ".h"}},
	{Name: "as", marks: []string{"assembly/index.ts"}, Build: assemblyscript.Build, Sources: []string{".ts"}},
	{Name: "ts", marks: []string{"package.json:quickjs-wasi"}, Build: quickjs.Build, Sources: []string{".ts", ".js", ".json"}},
}

// Names lists the languages for people.
func Names() string {
	var names []string
	for _, l := range Languages {
		names = append(names, l.Name)
	}
	return strings.Join(names, ", ")
}

// ByName returns the language with a name.
func ByName(name string) (Language, error) {
	for _, l := range Languages {
		if l.Name == name {
			return l, nil
		}
	}
	return Language{}, cli.Usagef("--lang is %q, must be one of %s", name, Names())
}

// Find detects the language of a project by its files.
func Find(dir string) (Language, error) {
	about, err := os.Stat(dir)
	if err != nil {
		return Language{}, err
	}
	if !about.IsDir() {
		return Language{}, cli.Usagef("%s is not a directory", dir)
	}
	for _, l := range Languages {
		for _, mark := range l.marks {
			if there, err := has(dir, mark); there || err != nil {
				return l, err
			}
		}
	}
	if code, err := has(dir, "*.go"); code || err != nil {
		return goPackage(dir, err)
	}
	return Language{}, cli.Hint(fmt.Errorf("%s has no files of a supported language (%s)", dir, Names()),
		"'hostd new --lang LANGUAGE NAME' creates a project.")
}

// goPackage returns the language of a directory with Go files and no go.mod: a
// package of the Go module above it, as in a repository with several modules.
func goPackage(dir string, err error) (Language, error) {
	above, absErr := filepath.Abs(dir)
	if err = errors.Join(err, absErr); err != nil {
		return Language{}, err
	}
	for parent := filepath.Dir(above); parent != above; parent = filepath.Dir(above) {
		above = parent
		if there, err := has(above, "go.mod"); err != nil {
			return Language{}, err
		} else if there {
			return ByName("go")
		}
	}
	return Language{}, cli.Hint(fmt.Errorf("%s has Go files, but no go.mod, and neither has a parent directory", dir),
		"'hostd new --lang go NAME' creates a project; 'go mod init' turns this directory into one.")
}

// maxMarkBytes limits how much of a file is searched for a mark.
const maxMarkBytes = 1 << 20

// has reports whether a directory matches a mark.
func has(dir, mark string) (bool, error) {
	name, text, inside := strings.Cut(mark, ":")
	found, err := filepath.Glob(filepath.Join(escape(dir), name))
	if err != nil || len(found) == 0 || !inside {
		return len(found) > 0, err
	}
	f, err := os.Open(found[0])
	if err != nil {
		return false, err
	}
	content, err := io.ReadAll(io.LimitReader(f, maxMarkBytes))
	return strings.Contains(string(content), text), errors.Join(err, f.Close())
}

// escape escapes a directory's name for use in a pattern.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
