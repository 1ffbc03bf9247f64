package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output and build failures
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// maxOutput bounds the output that is kept of one test; its end is what
// matters.
const maxOutput = 32 << 10

// test is one run of one test.
type test struct{ pkg, name string }

func (t test) String() string {
	if t.name == "" {
		return t.pkg
	}
	return t.pkg + " " + t.name
}

type totals struct {
	passed, failed, skipped int
	allowed                 map[test]string
	ran                     map[test]bool   // passed or failed in some run
	skips                   map[test]string // with their output
	failures                []string        // with their output
	times, packages         []took
}

func newTotals() *totals {
	return &totals{allowed: map[test]string{}, ran: map[test]bool{}, skips: map[test]string{}}
}

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
		t.allowed[test{pkg, name}] = strings.TrimSpace(reason)
	}
	return lines.Err()
}

// add counts one stream. Each stream is one invocation of go test: what it
// starts, it must finish.
func (t *totals) add(r io.Reader) error {
	lines := bufio.NewReader(r)
	output := map[test]string{}
	running := map[test]bool{}
	broken := map[string]bool{} // packages with a failed test
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				// go test writes what it cannot attribute as plain lines.
				e = event{Action: "output", Output: string(line)}
			}
			t.count(e, output, running, broken)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	var unfinished []test
	for k := range running {
		if k.name == "" || !broken[k.pkg] {
			unfinished = append(unfinished, k)
		}
	}
	slices.SortFunc(unfinished, func(a, b test) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range unfinished {
		t.fail(k, output[k]+"(it did not finish)\n")
	}
	return nil
}

func (t *totals) count(e event, output map[test]string, running map[test]bool, broken map[string]bool) {
	pkg := e.Package
	if pkg == "" {
		pkg = e.ImportPath
	}
	k := test{pkg, e.Test}
	switch e.Action {
	case "start", "run":
		running[k] = true
	case "output", "build-output":
		kept := output[k] + e.Output
		if over := len(kept) - maxOutput; over > 0 {
			kept = kept[over:]
		}
		output[k] = kept
	case "pass":
		if e.Test != "" {
			t.passed++
			t.ran[k] = true
		}
	case "skip":
		if e.Test != "" {
			t.skipped++
			t.skips[k] = output[k]
		}
	case "build-fail":
		t.fail(k, output[k])
		broken[pkg] = true
	case "fail":
		// A package that fails because of its tests is not one more failure.
		if e.Test != "" || !broken[pkg] && !broken[buildOf(pkg)] {
			t.fail(k, output[k])
		}
		broken[pkg] = true
	}
	if e.Action == "pass" || e.Action == "skip" || e.Action == "fail" || e.Action == "build-fail" {
		delete(running, k)
		delete(output, k)
		t.note(k, e.Elapsed)
	}
}

// buildOf names the test binary's build of a package, as build failures do.
func buildOf(pkg string) string { return pkg + " [" + pkg + ".test]" }

func (t *totals) fail(k test, output string) {
	t.failed++
	t.ran[k] = true
	t.failures = append(t.failures, fmt.Sprintf("FAIL %s\n%s", k, output))
}

// report writes everything and reports whether all is well. A test that was
// skipped in one run and not in another was not left out: short runs may skip
// what a full run has.
func (t *totals) report(w io.Writer) bool {
	ok := t.failed == 0 && t.passed > 0
	for _, k := range slices.SortedFunc(maps.Keys(t.skips), func(a, b test) int { return strings.Compare(a.String(), b.String()) }) {
		reason, allowed := t.allowed[k]
		switch {
		case t.ran[k]:
		case allowed:
			fmt.Fprintf(w, "SKIP %s: %s\n", k, reason)
		default:
			fmt.Fprintf(w, "SKIP %s: not among the allowed skips\n%s", k, t.skips[k])
			ok = false
		}
	}
	t.reportTimes(w)
	for _, f := range t.failures {
		fmt.Fprint(w, f)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	return ok
}
