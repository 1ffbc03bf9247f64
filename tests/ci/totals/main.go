// Command totals adds up what `go test -json` wrote: it lists every skip, what
// took the longest, and every failure with its output, and ends with the line
//
//	N passed, N failed, N skipped
//
// Every test counts once for each run of it, subtests included. It exits 1 on
// a failure, on a package that did not finish, on a test that every run
// skipped and the list of allowed skips gives no reason for, and when nothing
// was run. It never
// runs tests itself and starts no goroutine.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	allow := flag.String("allow", "", "`file` of allowed skips: a line each, the package, the test and the reason")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: totals [-allow FILE] JSON-FILE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	ok, err := run(*allow, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "totals:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(allowFile string, files []string) (ok bool, err error) {
	t := newTotals()
	if allowFile != "" {
		f, err := os.Open(allowFile)
		if err != nil {
			return false, err
		}
		defer f.Close()
		if err := t.allow(f); err != nil {
			return false, fmt.Errorf("%s: %w", allowFile, err)
		}
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return false, err
		}
		err = t.add(f)
		f.Close()
		if err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
	}
	return t.report(os.Stdout), nil
}
