package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hostd/hostd/tests/ci/events"
)

// slowest bounds each of the lists of slowest steps, packages and tests in the
// report.
const slowest = 10

// took is one run of a test or a package.
type took struct {
	events.Test
	seconds float64
}

// step is a step of the continuous run.
type step struct {
	name    string
	seconds float64
	ok      bool
}

// readSteps reads the log of steps that the continuous run writes.
func (t *totals) readSteps(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.SplitN(lines.Text(), " ", 3)
		if len(fields) < 3 {
			return fmt.Errorf("line %d: want the seconds, ok or FAILED, and the name", n)
		}
		seconds, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		t.steps = append(t.steps, step{fields[2], seconds, fields[1] == "ok"})
	}
	return lines.Err()
}

// note records the time of a test or a package that lasts a second or more. The
// time of a subtest is part of its test's time.
func (t *totals) note(k events.Test, seconds float64) {
	switch {
	case seconds < 1:
	case k.Name == "":
		t.packages = append(t.packages, took{k, seconds})
	case k == k.Top():
		t.times = append(t.times, took{k, seconds})
	}
}

// reportTimes writes the lists, slowest first.
func (t *totals) reportTimes(w io.Writer) {
	for _, list := range [][]took{t.times, t.packages} {
		slices.SortStableFunc(list, func(a, b took) int { return cmp.Compare(b.seconds, a.seconds) })
		for _, one := range list[:min(slowest, len(list))] {
			fmt.Fprintf(w, "TIME %6.1f s %s\n", one.seconds, one.Test)
		}
	}
	steps := slices.Clone(t.steps)
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, one := range steps[:min(slowest, len(steps))] {
		fmt.Fprintf(w, "TIME %6.1f s step %s\n", one.seconds, one.name)
	}
}
