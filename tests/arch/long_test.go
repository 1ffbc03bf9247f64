package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that `go test ./...` skips because it is slow runs in the
// continuous test run: the test's make target is one of that run's suites, and
// its -run pattern selects the test.
func TestLongTestsRunInTheContinuousRun(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	makefile, run := read("Makefile"), read(".ci/run")
	suites := regexp.MustCompile(`(?m)^for suite in (.*); do$`).FindStringSubmatch(run)
	if suites == nil {
		t.Fatal("the continuous run has no list of suites")
	}
	gate := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\) \{\n\ttestkit\.Long\(t, "(\w+)"\)$`)
	gated, calls := 0, 0
	for _, path := range paths(t) {
		if !strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "tests/arch/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) {
			continue // removed and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		calls += strings.Count(string(text), "testkit.Long(")
		for _, m := range gate.FindAllStringSubmatch(string(text), -1) {
			gated++
			name, target := m[1], m[2]
			if !strings.Contains(suites[1], `"`+target+" ") {
				t.Errorf("%s: the continuous run does not make %s, which is to run %s", path, target, name)
			}
			if target != "long" && !picks(t, makefile, run, target, name) {
				t.Errorf("%s: make %s does not run %s", path, target, name)
			}
		}
	}
	if gated == 0 || gated != calls {
		t.Errorf("%d calls of testkit.Long, of which %d are the first statement of a test, as make long takes them", calls, gated)
	}
}

// picks reports whether a test matches the -run pattern of a make target, as
// .ci/run calls it.
func picks(t *testing.T, makefile, run, target, name string) bool {
	t.Helper()
	_, recipe, found := strings.Cut(makefile, "\n"+target+": ")
	pattern := regexp.MustCompile(`-run '([^']*)'`).FindStringSubmatch(recipe)
	if !found || pattern == nil {
		t.Fatalf("make %s runs no tests by name", target)
	}
	text := strings.ReplaceAll(pattern[1], "$$", "$")
	if text == "$(NEMESIS)" {
		text = regexp.MustCompile(`NEMESIS='([^']*)'`).FindStringSubmatch(run)[1]
	}
	return regexp.MustCompile(text).MatchString(name)
}
