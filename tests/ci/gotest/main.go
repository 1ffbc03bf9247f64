// Command gotest runs `go test` for the continuous run. It stores the output of
// go test -json in a new file of a folder. It runs failed tests once more, each
// alone, unless their failure always counts:
//
//	gotest -results DIR -guarantees FILE -- GO-TEST-ARGUMENTS...
//
// It exits like go test, except that it exits 0 if every failed test passed on
// the second run; the totals name these tests. Its goroutines belong to the go
// commands for which it waits.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/hostd/hostd/tests/ci/events"
)

func main() {
	results := flag.String("results", "", "`folder` that gets a file with the events")
	file := flag.String("guarantees", "", "`file` of tests that are never run again")
	flag.Parse()
	code, err := run(*results, *file, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(2)
	}
	os.Exit(code)
}

func run(results, guaranteesFile string, args []string) (code int, err error) {
	f, err := os.Open(guaranteesFile)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	g, err := readGuarantees(f)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", guaranteesFile, err)
	}
	out, err := os.CreateTemp(results, "*.json")
	if err != nil {
		return 0, err
	}
	defer func() {
		if closed := out.Close(); err == nil {
			err = closed
		}
	}()
	first := newOutcome()
	ok, err := goTest(args, out, first)
	if err != nil {
		return 0, err
	}
	if ok {
		return 0, nil
	}
	if !first.failedAtAll {
		// For fuzzing, go test writes plain lines, and a failure has no event
		// of its own.
		name := "go test " + strings.Join(args, " ")
		err := write(out, events.Event{Action: "output", Package: name, Output: "it failed\n"}, events.Event{Action: "fail", Package: name})
		return 1, err
	}
	again, why := first.again(g)
	if len(again) == 0 {
		fmt.Println("no test is run again:", why)
		return 1, nil
	}
	for _, test := range again {
		fmt.Println("again, alone:", test)
		if err := write(out, events.Event{Action: events.Again, Package: test.Package, Test: test.Name}); err != nil {
			return 0, err
		}
		second := newOutcome()
		ok, err := goTest(alone(args, test), out, second)
		if err != nil {
			return 0, err
		}
		if !ok || !second.passed[test] {
			return 1, nil
		}
	}
	return 0, nil
}

// goTest runs go test -json, copies its events and records them.
func goTest(args []string, to io.Writer, note *outcome) (ok bool, err error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	readErr := events.Read(io.TeeReader(in, to), note.event)
	err = cmd.Wait()
	if readErr != nil {
		return false, readErr
	}
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		return false, err
	}
	return err == nil, nil
}

func write(to io.Writer, list ...events.Event) error {
	for _, e := range list {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if _, err := to.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// alone changes the arguments of go test so that it runs only one of the tests.
// It keeps all arguments except packages and flags that select tests.
func alone(args []string, test events.Test) []string {
	var out []string
	placed := false
	for i := 0; i < len(args); i++ {
		name, _, inline := strings.Cut(strings.TrimPrefix(args[i], "-"), "=")
		switch {
		case strings.HasPrefix(args[i], "-") && slices.Contains([]string{"run", "count", "parallel", "cpu"}, strings.TrimPrefix(name, "-")):
			if !inline {
				i++
			}
		case !isPackage(args[i]):
			out = append(out, args[i])
		case !placed:
			placed = true
			out = append(out, "-run", "^"+test.Name+"$", "-count=1", test.Package)
		}
	}
	return out
}

// isPackage reports whether an argument is a package, not a flag or its value.
func isPackage(arg string) bool {
	return strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "github.com/hostd/hostd")
}
