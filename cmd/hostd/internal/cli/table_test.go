package cli

import (
	"strings"
	"testing"
)

var nodes = [][]string{
	{"n1", "up", "true", "12", "", "0.1.0"},
	{"node-two", "up,draining", "true", "3", "", "0.1.0"},
	{"n3", "down", "false", "-", "", ""},
}

var nodesHead = strings.Split("NODE\tSTATUS\tREACHABLE\tLEADS\tZONE\tVERSION", "\t")

// On a terminal columns are aligned, numbers to the right, and no line ends
// with spaces.
func TestTablesAreAligned(t *testing.T) {
	want := strings.Join([]string{
		"NODE      STATUS       REACHABLE  LEADS  ZONE  VERSION",
		"n1        up           true          12        0.1.0",
		"node-two  up,draining  true           3        0.1.0",
		"n3        down         false          -",
		"",
	}, "\n")
	if got := screenTable(nodesHead, nodes, 80, Paint{}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// If the terminal is too narrow, only columns that are empty in every row are
// omitted.
func TestNarrowTables(t *testing.T) {
	got := screenTable(nodesHead, nodes, 50, Paint{})
	if head, _, _ := strings.Cut(got, "\n"); head != "NODE      STATUS       REACHABLE  LEADS  VERSION" {
		t.Errorf("the header is %q", head)
	}
	if got := screenTable(nodesHead, nodes, 10, Paint{}); strings.Count(got, "0.1.0") != 2 {
		t.Errorf("something is missing:\n%s", got)
	}
	if got := screenTable([]string{"KEY", "VALUE"}, nil, 2, Paint{}); got != "KEY  VALUE\n" {
		t.Errorf("of nothing: %q", got)
	}
}

// Cells that need attention are coloured, and colours do not affect the
// alignment.
func TestTablesArePainted(t *testing.T) {
	got := screenTable(nodesHead, nodes, 80, Paint{true})
	for _, part := range []string{"\x1b[1mNODE\x1b[0m", "\x1b[32mup\x1b[0m ", "\x1b[33mup,draining\x1b[0m", "\x1b[31mdown\x1b[0m", "\x1b[31mfalse\x1b[0m"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is missing in\n%q", part, got)
		}
	}
	bare := strings.NewReplacer("\x1b[0m", "", "\x1b[1m", "", "\x1b[31m", "", "\x1b[32m", "", "\x1b[33m", "").Replace(got)
	if plain := screenTable(nodesHead, nodes, 80, Paint{}); bare != plain {
		t.Errorf("got\n%s\nwant\n%s", bare, plain)
	}
	// The members of an entity are listed below its status.
	if got := screenTable([]string{"STATUS", "active"}, [][]string{{"sequence", "7"}}, 80, Paint{true}); strings.Contains(got, "\x1b[3") {
		t.Errorf("painted: %q", got)
	}
}
