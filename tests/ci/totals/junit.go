package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// The elements of JUnit XML in the form that build servers read. Flaky tests
// are reported in Maven's form.
type (
	xmlSuites struct {
		XMLName xml.Name   `xml:"testsuites"`
		Suites  []xmlSuite `xml:"testsuite"`
	}
	xmlSuite struct {
		Name     string    `xml:"name,attr"`
		Tests    int       `xml:"tests,attr"`
		Failures int       `xml:"failures,attr"`
		Skipped  int       `xml:"skipped,attr"`
		Time     string    `xml:"time,attr"`
		Cases    []xmlCase `xml:"testcase"`
		seconds  float64
	}
	xmlCase struct {
		Class   string   `xml:"classname,attr"`
		Name    string   `xml:"name,attr"`
		Time    string   `xml:"time,attr"`
		Failure *xmlText `xml:"failure,omitempty"`
		Flaky   *xmlText `xml:"flakyFailure,omitempty"`
		Skipped *xmlText `xml:"skipped,omitempty"`
	}
	xmlText struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// writeJUnit writes a suite for each package, and one for the steps of the run.
func (t *totals) writeJUnit(w io.Writer) error {
	suites := map[string]*xmlSuite{}
	add := func(suite string, seconds float64, top bool, c xmlCase) {
		s := suites[suite]
		if s == nil {
			s = &xmlSuite{Name: suite}
			suites[suite] = s
		}
		c.Class, c.Time = suite, fmt.Sprintf("%.2f", seconds)
		s.Tests++
		if c.Failure != nil {
			s.Failures++
		}
		if c.Skipped != nil {
			s.Skipped++
		}
		if top {
			s.seconds += seconds
		}
		s.Cases = append(s.Cases, c)
	}
	for _, r := range t.results {
		c := xmlCase{Name: r.Name}
		if r.Name == "" {
			c.Name = "(package)"
		}
		switch r.status {
		case failed:
			c.Failure = &xmlText{"it failed", printable(r.output)}
		case flaky:
			c.Flaky = &xmlText{"it failed, and passed alone", printable(r.output)}
		case skipped:
			c.Skipped = &xmlText{t.allowed[r.Test], printable(r.output)}
		}
		add(r.Package, r.seconds, r.Test == r.Top(), c)
	}
	for _, one := range t.steps {
		c := xmlCase{Name: one.name}
		if !one.ok {
			c.Failure = &xmlText{Message: "it failed"}
		}
		add("steps", one.seconds, true, c)
	}
	var all xmlSuites
	for _, name := range slices.Sorted(maps.Keys(suites)) {
		s := suites[name]
		s.Time = fmt.Sprintf("%.2f", s.seconds)
		all.Suites = append(all.Suites, *s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", " ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// printable removes characters that XML cannot represent.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' || r == 0xfffe || r == 0xffff {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
