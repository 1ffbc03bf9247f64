package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// slowest is how many tests the report names for their time, and slowPackages
// how many packages.
const slowest, slowPackages = 15, 8

// took is one run of a test or a package.
type took struct {
	test
	seconds float64
}

// note keeps the time of a test or a package that takes a second or more; that
// of a subtest is part of its test's.
func (t *totals) note(k test, seconds float64) {
	switch {
	case seconds < 1:
	case k.name == "":
		t.packages = append(t.packages, took{k, seconds})
	case !strings.Contains(k.name, "/"):
		t.times = append(t.times, took{k, seconds})
	}
}

// reportTimes writes where the time went, the longest first.
func (t *totals) reportTimes(w io.Writer) {
	for _, list := range []struct {
		of   []took
		most int
	}{{t.packages, slowPackages}, {t.times, slowest}} {
		slices.SortStableFunc(list.of, func(a, b took) int { return cmp.Compare(b.seconds, a.seconds) })
		for _, one := range list.of[:min(list.most, len(list.of))] {
			fmt.Fprintf(w, "TIME %6.1f s %s\n", one.seconds, one.test)
		}
	}
}
