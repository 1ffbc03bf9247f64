package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hostd/hostd/tests/ci/events"
)

// mostAgain is the maximum number of tests of one go test that are run again.
// If more tests fail, none of them is run again and the run fails.
const mostAgain = 2

// always matches output that a slow machine cannot explain. A failure with such
// output counts even if the test passes later. Goroutine stacks indicate leaks
// and panics.
var always = regexp.MustCompile(`(?i)data race|race detected|goroutine|(?m:^(panic|fatal error): )`)

// outcome is the result of a run of go test.
type outcome struct {
	output      map[events.Test]string
	running     map[events.Test]bool
	failed      map[events.Test]string // tests without their subtests, with the output of all subtests
	passed      map[events.Test]bool
	broken      map[string]string // packages that failed for other reasons, and the reasons
	failedAtAll bool
}

func newOutcome() *outcome {
	return &outcome{output: map[events.Test]string{}, running: map[events.Test]bool{}, failed: map[events.Test]string{}, passed: map[events.Test]bool{}, broken: map[string]string{}}
}

func (o *outcome) event(e *events.Event) {
	test := e.Of()
	top := test.Top()
	switch e.Action {
	case "start", "run":
		o.running[test] = true
	case "output", "build-output":
		o.output[top] = events.Keep(o.output[top], e.Output)
	case "build-fail":
		o.failedAtAll = true
		o.broken[test.Package] = "it does not build"
	case "pass":
		o.passed[test] = true
	case "fail":
		o.failedAtAll = true
		switch {
		case test.Name == "" && o.anyFailed(test.Package):
			if sign := always.FindString(o.output[test]); sign != "" {
				o.broken[test.Package] = "its output has " + sign
			}
		case test.Name == "":
			o.broken[test.Package] = "it fails without a test that does"
		case test == top:
			o.failed[test] = o.output[test]
		}
	}
	switch e.Action {
	case "pass", "fail", "skip":
		delete(o.running, test)
	}
}

func (o *outcome) anyFailed(pkg string) bool {
	for test := range o.failed {
		if test.Package == pkg {
			return true
		}
	}
	return false
}

// again returns the tests to run once more: either all failed tests, or none
// and the reason. If one of the failures always counts, the run fails anyway,
// so no test is run again.
func (o *outcome) again(g guarantees) (tests []events.Test, why string) {
	for pkg, how := range o.broken {
		return nil, pkg + ": " + how
	}
	for test := range o.running {
		return nil, test.String() + " did not end"
	}
	if len(o.failed) > mostAgain {
		return nil, fmt.Sprintf("%d failed", len(o.failed))
	}
	tests = slices.SortedFunc(maps.Keys(o.failed), func(a, b events.Test) int { return strings.Compare(a.String(), b.String()) })
	for _, test := range tests {
		if what := g.of(test); what != "" {
			return nil, test.String() + " is a test of " + what
		}
		if sign := always.FindString(o.failed[test]); sign != "" {
			return nil, test.String() + " told of " + sign
		}
	}
	return tests, "none failed"
}

// guarantees lists the tests of guarantees that hostd gives under any fault.
// These tests draw seeds and kill nodes, so passing on the second run proves
// nothing.
type guarantees []guarantee

type guarantee struct {
	pkg  string // empty for any
	name *regexp.Regexp
	what string
}

// readGuarantees reads lines of a package, a pattern of test names, and the
// guarantee that they test.
func readGuarantees(r io.Reader) (guarantees, error) {
	var g guarantees
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pkg, rest, _ := strings.Cut(line, " ")
		pattern, what, ok := strings.Cut(strings.TrimSpace(rest), " ")
		if !ok {
			return nil, fmt.Errorf("line %d: want a package, a pattern and what it is a test of", n)
		}
		name, err := regexp.Compile(pattern)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		g = append(g, guarantee{strings.TrimSuffix(pkg, "*"), name, strings.TrimSpace(what)})
	}
	return g, lines.Err()
}

// of returns the guarantee that a test checks, or "" if it checks none.
func (g guarantees) of(test events.Test) string {
	for _, one := range g {
		if (one.pkg == "" || one.pkg == test.Package) && one.name.MatchString(test.Name) {
			return one.what
		}
	}
	return ""
}
