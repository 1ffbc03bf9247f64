// Package mutants checks the tests: each mutant is the code with one known
// fault planted behind a build tag mutant_N, and some test must fail on it. A
// suite that stays green on a planted fault proves nothing. It never changes a
// file; the go commands that it starts are waited for by the test that starts
// them.
package mutants

import (
	"go/build/constraint"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// simulator and lives are the packages whose tests are given every mutant to
// find, next to the tests of the package that the fault is planted in.
const (
	simulator = "tests/sim"
	lives     = "tests/lives"
)

// mutant is one planted fault.
type mutant struct {
	tag      string
	packages []string // relative to the root, with a leading ./
}

var tagPattern = regexp.MustCompile(`\bmutant_[0-9]+\b`)

// find returns the mutants planted under root, by tag: each tag that switches
// a file on which is off without it.
func find(root string) ([]mutant, error) {
	planted := map[string]map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, tag := range switchedOnBy(string(text)) {
			if planted[tag] == nil {
				planted[tag] = map[string]bool{}
			}
			planted[tag]["./"+filepath.ToSlash(pkg)] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var everywhere []string
	for _, pkg := range []string{simulator, lives} {
		tests, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
		if err != nil {
			return nil, err
		}
		if len(tests) > 0 {
			everywhere = append(everywhere, pkg)
		}
	}
	var all []mutant
	for _, tag := range slices.Sorted(maps.Keys(planted)) {
		for _, pkg := range everywhere {
			planted[tag]["./"+pkg] = true
		}
		all = append(all, mutant{tag, slices.Sorted(maps.Keys(planted[tag]))})
	}
	return all, nil
}

// switchedOnBy returns the mutant tags that the file is built with and not
// without.
func switchedOnBy(text string) []string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "package ") {
			break
		}
		if !constraint.IsGoBuild(line) {
			continue
		}
		expr, err := constraint.Parse(line)
		if err != nil {
			break
		}
		var tags []string
		for _, tag := range tagPattern.FindAllString(line, -1) {
			with := expr.Eval(func(t string) bool { return t == tag })
			without := expr.Eval(func(string) bool { return false })
			if with && !without {
				tags = append(tags, tag)
			}
		}
		return tags
	}
	return nil
}
