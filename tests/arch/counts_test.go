package arch

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the counts in testdata anew")

// readCounts reads lines of a package and a count.
func readCounts(t *testing.T, file string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			t.Fatalf("%s: %q is not a package and a count", file, line)
		}
		n, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		out[fields[0]] = n
	}
	return out
}

// writeCounts writes what readCounts reads.
func writeCounts(t *testing.T, file string, counts map[string]int) {
	t.Helper()
	var b strings.Builder
	for _, pkg := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "%s %d\n", pkg, counts[pkg])
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// risen are the packages that have more than are left, where all packages
// together have more, too: what moves from one to another takes its lines
// along.
func risen(now, left map[string]int) (out []string) {
	total := 0
	for _, n := range now {
		total += n
	}
	for _, n := range left {
		total -= n
	}
	for pkg, n := range now {
		if n > left[pkg] && total > 0 {
			out = append(out, pkg)
		}
	}
	return out
}

// compareCounts holds the counts of today to those in a file. Those that fell
// fail nothing, so that branches do not meet in that file.
func compareCounts(t *testing.T, file string, now map[string]int, say func(pkg string) string) {
	t.Helper()
	if *rewrite {
		writeCounts(t, file, now)
		return
	}
	left := readCounts(t, file)
	for _, pkg := range risen(now, left) {
		t.Errorf("%s: %d, there were %d: %s", pkg, now[pkg], left[pkg], say(pkg))
	}
	for pkg, n := range left {
		if now[pkg] < n {
			t.Logf("%s: %d, there were %d: `go test ./tests/arch -rewrite` lowers %s", pkg, now[pkg], n, file)
		}
	}
}

func TestRuleOfCountsFires(t *testing.T) {
	if len(risen(map[string]int{"a": 2}, map[string]int{"a": 1})) != 1 {
		t.Error("a line more is not found")
	}
	if len(risen(map[string]int{"b": 1}, map[string]int{"a": 1})) != 0 {
		t.Error("a line that moved is found")
	}
}
