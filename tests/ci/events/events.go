// Package events reads what `go test -json` writes. It keeps nothing and starts
// no goroutine.
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
	ImportPath string  `json:",omitempty"` // of build output and build failures
	Test       string  `json:",omitempty"`
	Output     string  `json:",omitempty"`
	Elapsed    float64 `json:",omitempty"` // seconds
}

// Again is an action of this project's own: the test that the event names
// failed in this stream, and the events that follow are of a run of it alone.
const Again = "again"

// Test is a test, or a package where the name is empty.
type Test struct{ Package, Name string }

func (t Test) String() string {
	if t.Name == "" {
		return t.Package
	}
	return t.Package + " " + t.Name
}

// Top is the test itself where t is one of its subtests.
func (t Test) Top() Test {
	t.Name, _, _ = strings.Cut(t.Name, "/")
	return t
}

// Of is the test that an event is of; for builds, what was built.
func (e *Event) Of() Test {
	if e.Package == "" {
		return Test{e.ImportPath, e.Test}
	}
	return Test{e.Package, e.Test}
}

// BuildOf names the build of a package's tests as build failures do.
func BuildOf(pkg string) string { return pkg + " [" + pkg + ".test]" }

// Read calls fn with each event of a stream. What go test writes as plain
// lines, since it cannot say what they are of, is output of nothing.
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

// MaxOutput bounds what is kept of one test's output.
const MaxOutput = 32 << 10

// Keep adds to a test's output, of which the end is what matters.
func Keep(kept, more string) string {
	kept += more
	return kept[max(0, len(kept)-MaxOutput):]
}
