package mutants

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFaultsCanBePlanted finds faults that no longer fit the code, in the
// catalog and in the folders named planted.
func TestFaultsCanBePlanted(t *testing.T) {
	var all []fault
	for _, pattern := range []string{"tests/mutants/catalog/*.txt", "tests/e2e/*/planted/*.txt", "tests/security/planted/*.txt"} {
		some, err := read(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 {
			t.Fatalf("there is no %s: the search is wrong", pattern)
		}
		all = append(all, some...)
	}
	for _, f := range all {
		if err := f.plant(root, map[string]string{}); err != nil {
			t.Error(err)
		}
		for _, args := range f.tests {
			tests, err := filepath.Glob(filepath.Join(root, args[0], "*_test.go"))
			if err != nil || len(tests) == 0 {
				t.Errorf("%s: %s has no tests", f.name, args[0])
			}
			if run := runFlag(args); run != nil && !hasTest(t, tests, run) {
				t.Errorf("%s: no test of %s matches %s", f.name, args[0], run)
			}
		}
	}
}

// runFlag returns the pattern of the flag -run in args, or nil if there is
// none.
func runFlag(args []string) *regexp.Regexp {
	for _, arg := range args {
		if pattern, ok := strings.CutPrefix(arg, "-run="); ok {
			name, _, _ := strings.Cut(pattern, "/")
			return regexp.MustCompile(name)
		}
	}
	return nil
}

// hasTest reports whether a test in files has a name that matches run.
func hasTest(t *testing.T, files []string, run *regexp.Regexp) bool {
	t.Helper()
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(src, -1) {
			if run.Match(m[1]) {
				return true
			}
		}
	}
	return false
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

var write = flag.Bool("write", false, "write the table of the faults into README.md")

// TestFaultsAreListed checks that the table of faults matches the catalog. Each
// number belongs to one fault, and each fault names the invariants or areas
// that it breaks.
func TestFaultsAreListed(t *testing.T) {
	all, err := catalog(root)
	if err != nil {
		t.Fatal(err)
	}
	known, err := invariants(root)
	if err != nil {
		t.Fatal(err)
	}
	known = append(known, areas...)
	name := map[string]string{}
	for _, f := range all {
		number, _, _ := strings.Cut(f.name, "-")
		number = strings.TrimLeft(number, "0")
		if before := name[number]; before != "" {
			t.Errorf("%s and %s have one number", before, f.name)
		}
		name[number] = f.name
		if len(f.holds) == 0 {
			t.Fatalf("%s does not say what it breaks: a line `holds: I3`, or one of %v", f.name, known)
		}
		for _, h := range f.holds {
			if !slices.Contains(known, h) {
				t.Errorf("%s breaks %q, which is none of %v", f.name, h, known)
			}
		}
	}
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatal("README.md has no place for the table")
	}
	want := before + tableBegins + table(all) + tableEnds + after
	switch {
	case want == string(page):
	case *write:
		if err := os.WriteFile("README.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("the table of README.md is not that of the catalog: go test ./tests/mutants -run TestFaultsAreListed -write")
	}
}

// TestInvariantsHaveFaults checks that each invariant has a fault, and that
// each fault is in the product, because a fault in a test double proves nothing
// about the product.
func TestInvariantsHaveFaults(t *testing.T) {
	all, err := catalog(root)
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := invariants(root)
	if err != nil || len(numbers) < 13 {
		t.Fatalf("invariants %v: %v", numbers, err)
	}
	broken := map[string]bool{}
	for _, f := range all {
		for _, e := range f.edits {
			if strings.HasPrefix(e.file, "tests/") || strings.HasSuffix(e.file, "_test.go") || strings.HasSuffix(filepath.Dir(e.file), "test") {
				t.Errorf("%s is a fault of %s, which does not ship", f.name, e.file)
			}
		}
		for _, h := range f.holds {
			broken[h] = true
		}
	}
	for _, h := range append(numbers, areas...) {
		if !broken[h] {
			t.Errorf("no planted fault breaks %s", h)
		}
	}
}

const text = `The log is not synced.

holds: I2, I8
seeds: 60
tests: ./journal/wal
tests: ./tests/e2e/disk -run=TestPowerLoss

@@ journal/wal/sync.go
<<<<
	one
====
	two
>>>>

@@ journal/wal/sync.go
<<<<
	three
====
>>>>
`

func TestParse(t *testing.T) {
	f, err := parse("01-sync", text)
	if err != nil {
		t.Fatal(err)
	}
	if f.says != "The log is not synced." || len(f.tests) != 2 || f.tests[1][1] != "-run=TestPowerLoss" || !slices.Equal(f.holds, []string{"I2", "I8"}) || f.seeds != 60 {
		t.Errorf("head: %+v", f)
	}
	want := []edit{{"journal/wal/sync.go", "\tone\n", "\ttwo\n"}, {"journal/wal/sync.go", "\tthree\n", ""}}
	if len(f.edits) != 2 || f.edits[0] != want[0] || f.edits[1] != want[1] {
		t.Errorf("edits %q, want %q", f.edits, want)
	}
	for name, bad := range map[string]string{
		"no words":       strings.Replace(text, "The log is not synced.", "", 1),
		"no tests":       "It is bad.\n\n@@ a.go\n<<<<\nx\n====\n>>>>\n",
		"no edits":       "It is bad.\n\ntests: ./a\n",
		"no old text":    "It is bad.\n\ntests: ./a\n\n@@ a.go\n<<<<\n====\nx\n>>>>\n",
		"no end":         "It is bad.\n\ntests: ./a\n\n@@ a.go\n<<<<\nx\n====\ny\n",
		"seeds a word":   "It is bad.\n\ntests: ./a\nseeds: many\n\n@@ a.go\n<<<<\nx\n====\n>>>>\n",
		"text outside":   "It is bad.\n\ntests: ./a\n\n@@ a.go\n<<<<\nx\n====\n>>>>\nmore\n",
		"no divider":     "It is bad.\n\ntests: ./a\n\n@@ a.go\n<<<<\nx\n>>>>\n",
		"nothing at all": "",
	} {
		if f, err := parse("bad", bad); err == nil {
			t.Errorf("%s: taken as %+v", name, f)
		}
	}
}

func TestPlant(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "a.go")
	if err := os.WriteFile(file, []byte("one\ntwo\nthree\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := fault{name: "f", edits: []edit{{"a.go", "one\n", "four\n"}, {"a.go", "three\n", ""}}}
	got := map[string]string{}
	if err := f.plant(root, got); err != nil || got["a.go"] != "four\ntwo\n" {
		t.Errorf("planted: %q", got)
	}
	for _, old := range []string{"t", "five\n"} { // the first text occurs twice, the second does not occur
		f := fault{name: "f", edits: []edit{{"a.go", old, ""}}}
		if err := f.plant(root, map[string]string{}); err == nil {
			t.Errorf("%q was replaced", old)
		}
	}
}
