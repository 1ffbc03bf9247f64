// Package events reads the output of `go test -json`. It keeps no state and
// starts no goroutine.
package events

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
)

// Event is a line of `go test -json`; see `go doc test2json`.
type Event struct {
	Action     string
	Package    string  `json:",omitempty"`
	ImportPath string  `json:",omitempty"` // set for build output and build failures
	Test       string  `json:",omitempty"`
	Output     string  `json:",omitempty"`
	Elapsed    float64 `json:",omitempty"` // seconds
}

// Again is an action that only this project uses. It means that the named test
// failed in this stream, and that the following events belong to a second run
// of that test alone.
const Again = "again"

// Test is a test, or a package if the name is empty.
type Test struct{ Package, Name string }

func (t Test) String() string {
	if t.Name == "" {
		return t.Package
	}
	return t.Package + " " + t.Name
}

// Top returns the top-level test of a subtest.
func (t Test) Top() Test {
	t.Name, _, _ = strings.Cut(t.Name, "/")
	return t
}

// Of returns the test to which an event belongs. For a build event, it returns
// the import path that was built.
func (e *Event) Of() Test {
	if e.Package == "" {
		return Test{e.ImportPath, e.Test}
	}
	return Test{e.Package, e.Test}
}

// BuildOf returns the name under which go test reports that a package's tests
// do not build.
func BuildOf(pkg string) string { return pkg + " [" + pkg + ".test]" }

// Read calls fn with each event of a stream. go test writes plain lines if it
// cannot attribute them; they become output events without a test.
func Read(r io.Reader, fn func(*Event)) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e Event
			if json.Unmarshal(line, &e) != nil {
				e = Event{Action: "output", Output: string(line)}
			}
			fn(&e)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// MaxOutput bounds the output that is kept of one test, in bytes.
const MaxOutput = 32 << 10

// Keep appends to the output of a test and keeps its end.
func Keep(kept, more string) string {
	kept += more
	return kept[max(0, len(kept)-MaxOutput):]
}
