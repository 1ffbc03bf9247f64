package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hostd/hostd/tests/ci/events"
)

// tooFlaky is the number of flaky tests at which the run fails.
const tooFlaky = 3

// result is the result of one run of one test, or of a package that failed
// without a failed test.
type result struct {
	events.Test
	status  status
	seconds float64
	output  string // set if the test did not pass at once
}

type status int

const (
	passed status = iota
	failed
	skipped
	flaky // failed, and passed on the second run
)

type totals struct {
	allowed         map[events.Test]string
	results         []result
	times, packages []took
	steps           []step
}

func newTotals() *totals { return &totals{allowed: map[events.Test]string{}} }

// allow reads the list of allowed skips.
func (t *totals) allow(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pkg, rest, _ := strings.Cut(line, " ")
		name, reason, ok := strings.Cut(strings.TrimSpace(rest), " ")
		if !ok {
			return fmt.Errorf("line %d: want a package, a test and a reason", n)
		}
		t.allowed[events.Test{Package: pkg, Name: name}] = strings.TrimSpace(reason)
	}
	return lines.Err()
}

// stream is the output of one go test. Every test and package that starts in
// the stream must finish in it.
type stream struct {
	*totals
	first   int // index of its first result
	output  map[events.Test]string
	running map[events.Test]bool
	broken  map[string]bool      // packages with a failed test
	again   map[events.Test]bool // tests that are run a second time
}

// add counts one stream.
func (t *totals) add(r io.Reader) error {
	s := stream{t, len(t.results), map[events.Test]string{}, map[events.Test]bool{}, map[string]bool{}, map[events.Test]bool{}}
	if err := events.Read(r, s.count); err != nil {
		return err
	}
	var unfinished []events.Test
	for k := range s.running {
		if k.Name == "" || !s.broken[k.Package] {
			unfinished = append(unfinished, k)
		}
	}
	slices.SortFunc(unfinished, byName)
	for _, k := range unfinished {
		s.results = append(s.results, result{k, failed, 0, s.output[k] + "(it did not finish)\n"})
	}
	return nil
}

func (s *stream) count(e *events.Event) {
	k := e.Of()
	switch e.Action {
	case events.Again:
		s.again[k] = true
		return
	case "start", "run":
		s.running[k] = true
		return
	case "output", "build-output":
		s.output[k] = events.Keep(s.output[k], e.Output)
		return
	case "pass":
		if k.Name != "" {
			s.results = append(s.results, result{k, passed, e.Elapsed, ""})
		}
		if s.again[k] {
			s.forgive(k)
		}
	case "skip":
		if k.Name != "" {
			s.results = append(s.results, result{k, skipped, e.Elapsed, s.output[k]})
		}
	case "build-fail":
		s.results = append(s.results, result{k, failed, 0, s.output[k]})
		s.broken[k.Package] = true
	case "fail":
		// A package that fails only because of its tests is not counted as a separate
		// failure.
		if k.Name != "" || !s.broken[k.Package] && !s.broken[events.BuildOf(k.Package)] {
			s.results = append(s.results, result{k, failed, e.Elapsed, s.output[k]})
		}
		s.broken[k.Package] = true
	default:
		return
	}
	delete(s.running, k)
	delete(s.output, k)
	s.note(k, e.Elapsed)
}

// forgive removes the failures of a test and its subtests after the test has
// passed on its second run, and marks it as flaky.
func (s *stream) forgive(k events.Test) {
	before := s.results[s.first:]
	kept := before[:0]
	var said strings.Builder
	for _, r := range before {
		if r.status != failed || r.Top() != k {
			kept = append(kept, r)
			continue
		}
		fmt.Fprintf(&said, "%s\n%s", r.Test, r.output)
	}
	for i := range kept {
		if kept[i].Test == k && kept[i].status == passed {
			kept[i].status, kept[i].output = flaky, said.String()
		}
	}
	s.results = s.results[:s.first+len(kept)]
}

func byName(a, b events.Test) int { return strings.Compare(a.String(), b.String()) }

// later is the skip message of slow tests that were not selected. The
// continuous test run selects each of them in one of its next runs.
const later = "takes long: run it by its name"

// report writes the summary and reports whether the run is successful. A test
// that only some runs skipped counts as run, because short runs may skip tests
// that a full run includes.
func (t *totals) report(w io.Writer) bool {
	n := map[status]int{}
	ran, skips := map[events.Test]bool{}, map[events.Test]string{}
	for _, r := range t.results {
		n[r.status]++
		if r.status == skipped {
			skips[r.Test] = r.output
		} else {
			ran[r.Test] = true
		}
	}
	ok := true
	for _, k := range slices.SortedFunc(maps.Keys(skips), byName) {
		reason, allowed := t.allowed[k]
		switch {
		case ran[k]:
		case allowed:
			fmt.Fprintf(w, "SKIP %s: %s\n", k, reason)
		case strings.Contains(skips[k], later):
			fmt.Fprintf(w, "SKIP %s: takes long, and another run has it\n", k)
		default:
			fmt.Fprintf(w, "SKIP %s: not among the allowed skips\n%s", k, skips[k])
			ok = false
		}
	}
	t.reportTimes(w)
	for _, r := range t.results {
		switch r.status {
		case flaky:
			fmt.Fprintf(w, "FLAKY %s: it failed, and passed alone\n%s", r.Test, r.output)
		case failed:
			fmt.Fprintf(w, "FAIL %s\n%s", r.Test, r.output)
		}
	}
	if n[flaky] >= tooFlaky {
		fmt.Fprintf(w, "%d flaky tests are failures: at most %d may be\n", n[flaky], tooFlaky-1)
		n[failed] += n[flaky]
	} else {
		n[passed] += n[flaky]
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", n[passed], n[failed], n[skipped])
	return ok && n[failed] == 0 && n[passed] > 0
}
