package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/tests/ci/events"
)

func event(action, pkg, name, output string) *events.Event {
	return &events.Event{Action: action, Package: pkg, Test: name, Output: output}
}

// failing returns the events of a failing test.
func failing(pkg, name, output string) []*events.Event {
	return []*events.Event{event("run", pkg, name, ""), event("output", pkg, name, output), event("fail", pkg, name, "")}
}

func TestFailuresThatAreRetried(t *testing.T) {
	g, err := readGuarantees(strings.NewReader("# why\n* Model models\nm/sim . simulation\n"))
	if err != nil {
		t.Fatal(err)
	}
	begin, fail := event("start", "m/p", "", ""), event("fail", "m/p", "", "")
	for _, tt := range []struct {
		name string
		in   [][]*events.Event
		want []string
		why  string
	}{
		{"a failure", [][]*events.Event{{begin}, failing("m/p", "TestA", "late\n"), {fail}}, []string{"m/p TestA"}, ""},
		{"two", [][]*events.Event{{begin}, failing("m/p", "TestB", ""), failing("m/p", "TestA", ""), {fail}}, []string{"m/p TestA", "m/p TestB"}, ""},
		{"three", [][]*events.Event{{begin}, failing("m/p", "TestB", ""), failing("m/p", "TestA", ""), failing("m/p", "TestC", ""), {fail}}, nil, "3 failed"},
		{"a subtest", [][]*events.Event{{begin, event("run", "m/p", "TestA", "")}, failing("m/p", "TestA/b", ""), {event("fail", "m/p", "TestA", ""), fail}}, []string{"m/p TestA"}, ""},
		{"a guarantee", [][]*events.Event{{event("start", "m/sim", "", "")}, failing("m/sim", "TestSeeds", ""), {event("fail", "m/sim", "", "")}}, nil, "is a test of simulation"},
		{"a guarantee by its name", [][]*events.Event{{begin}, failing("m/p", "TestAgreesWithModel", ""), {fail}}, nil, "is a test of models"},
		{"a race", [][]*events.Event{{begin}, failing("m/p", "TestA", "WARNING: DATA RACE\n"), {fail}}, nil, "told of DATA RACE"},
		{"a race in a subtest", [][]*events.Event{{begin, event("run", "m/p", "TestA", "")}, failing("m/p", "TestA/b", "race detected during execution of test\n"), {event("fail", "m/p", "TestA", ""), fail}}, nil, "race detected"},
		{"a race after the tests", [][]*events.Event{{begin}, failing("m/p", "TestA", ""), {event("output", "m/p", "", "WARNING: DATA RACE\n"), fail}}, nil, "DATA RACE"},
		{"a leak", [][]*events.Event{{begin}, failing("m/p", "TestA", "there were 3 goroutines before, and now 4\n"), {fail}}, nil, "told of goroutine"},
		{"a panic", [][]*events.Event{{begin}, failing("m/p", "TestA", "panic: nil\n"), {fail}}, nil, "told of panic"},
		{"a package without a failing test", [][]*events.Event{{begin, fail}}, nil, "fails without a test"},
		{"beside a failing test", [][]*events.Event{{event("start", "m/q", "", ""), event("fail", "m/q", "", ""), begin}, failing("m/p", "TestA", ""), {fail}}, nil, "fails without a test"},
		{"a build", [][]*events.Event{{{Action: "build-fail", ImportPath: "m/p"}, begin, fail}}, nil, "m/p: "},
		{"one that does not end", [][]*events.Event{{begin, event("run", "m/p", "TestB", "")}, failing("m/p", "TestA", ""), {fail}}, nil, "m/p TestB did not end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOutcome()
			for _, part := range tt.in {
				for _, e := range part {
					o.event(e)
				}
			}
			tests, why := o.again(g)
			var got []string
			for _, test := range tests {
				got = append(got, test.String())
			}
			if !slices.Equal(got, tt.want) || tt.want == nil && !strings.Contains(why, tt.why) {
				t.Errorf("%v run again (%s), want %v (%s)", got, why, tt.want, tt.why)
			}
		})
	}
}

func TestArgumentsOfOneTest(t *testing.T) {
	test := events.Test{Package: "github.com/hostd/hostd/a", Name: "TestA"}
	for in, want := range map[string]string{
		"./...": "-run ^TestA$ -count=1 github.com/hostd/hostd/a",
		"-race -short -run . -timeout 20m github.com/hostd/hostd/a github.com/hostd/hostd/b": "-race -short -timeout 20m -run ^TestA$ -count=1 github.com/hostd/hostd/a",
		"-run=^(A|B)$ -count=3 -parallel 4 ./a -seeds 3 -v":                                  "-run ^TestA$ -count=1 github.com/hostd/hostd/a -seeds 3 -v",
	} {
		if got := strings.Join(alone(strings.Fields(in), test), " "); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestGuaranteesNeedTheirTests(t *testing.T) {
	for _, bad := range []string{"p TestA\n", "p ( what\n", "p\n"} {
		if _, err := readGuarantees(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// TestGuaranteesExist checks that each line names an existing test, because
// otherwise it has no effect.
func TestGuaranteesExist(t *testing.T) {
	const root = "../../.."
	f, err := os.Open("../guarantees.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := readGuarantees(f)
	if err != nil || len(g) == 0 {
		t.Fatalf("%d guarantees: %v", len(g), err)
	}
	named := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, one := range g {
		if one.pkg == "" {
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, strings.TrimPrefix(one.pkg, "github.com/hostd/hostd/"), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range named.FindAllSubmatch(text, -1) {
				found = found || one.name.Match(m[1])
			}
		}
		if !found {
			t.Errorf("%s %s names no test", one.pkg, one.name)
		}
	}
}

// TestFailedTestsAreRetried runs go test on a temporary module with tests that
// fail only the first time, tests that always fail, and failing tests of
// guarantees. Only a test that fails only the first time may pass.
func TestFailedTestsAreRetried(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	dir, results := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module m\n\ngo 1.26\n",
		"guarantees": "* Promise promises\n",
		"m_test.go": `package m

import (
	"os"
	"testing"
)

func once(t *testing.T) {
	if os.Mkdir(t.Name(), 0o755) == nil {
		t.Fatal("the first time")
	}
}

func TestFlaky(t *testing.T)   { once(t) }
func TestPromise(t *testing.T) { once(t) }
func TestWrong(t *testing.T)   { t.Fatal("always") }
func TestRight(t *testing.T)   {}
func TestPanics(t *testing.T)  { panic("no") }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, tt := range []struct {
		pattern string
		code    int
		again   int
	}{
		{"Right", 0, 0},
		{"Right|Flaky", 0, 1},
		{"Right|Wrong", 1, 1},
		{"Right|Promise", 1, 0},
		{"Panics", 1, 0},
	} {
		before, _ := filepath.Glob(results + "/*.json")
		code, err := run(results, "guarantees", []string{"-run", tt.pattern, "./..."})
		if err != nil || code != tt.code {
			t.Errorf("%s: exit status %d, want %d: %v", tt.pattern, code, tt.code, err)
		}
		after, _ := filepath.Glob(results + "/*.json")
		for _, name := range after {
			if slices.Contains(before, name) {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), `"Action":"again"`); n != tt.again {
				t.Errorf("%s: %d tests were run again, want %d:\n%s", tt.pattern, n, tt.again, text)
			}
		}
	}
}
