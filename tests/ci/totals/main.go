// Command totals summarizes the output of `go test -json`. It lists every
// skipped test, the slowest tests, every test that passed only on a second run,
// and every failure with its output, and ends with the line
//
//	N passed, N failed, N skipped
//
// Every test counts once for each run, subtests included. It exits with code 1
// if a test failed, if a package did not finish, if every run skipped a test
// without a reason in the list of allowed skips, if there are too many flaky
// tests, or if there is no test at all. It never runs tests itself and starts
// no goroutine.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	var o options
	flag.StringVar(&o.allow, "allow", "", "`file` of allowed skips: a line each, the package, the test and the reason")
	flag.StringVar(&o.steps, "steps", "", "`file` of steps: a line each, the seconds, ok or FAILED, and the name")
	flag.StringVar(&o.junit, "junit", "", "`file` that gets the results as JUnit XML")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: totals [-allow FILE] [-steps FILE] [-junit FILE] JSON-FILE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	ok, err := run(o, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "totals:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

type options struct{ allow, steps, junit string }

func run(o options, files []string) (ok bool, err error) {
	t := newTotals()
	for _, in := range []struct {
		name string
		read func(io.Reader) error
	}{{o.allow, t.allow}, {o.steps, t.readSteps}} {
		if in.name != "" {
			if err := readFile(in.name, in.read); err != nil {
				return false, err
			}
		}
	}
	for _, name := range files {
		if err := readFile(name, t.add); err != nil {
			return false, err
		}
	}
	if o.junit != "" {
		f, err := os.Create(o.junit)
		if err != nil {
			return false, err
		}
		if err := t.writeJUnit(f); err != nil {
			f.Close()
			return false, fmt.Errorf("%s: %w", o.junit, err)
		}
		if err := f.Close(); err != nil {
			return false, err
		}
	}
	return t.report(os.Stdout), nil
}

func readFile(name string, read func(io.Reader) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := read(f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
