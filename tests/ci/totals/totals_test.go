package main

import (
	"strings"
	"testing"
)

const (
	start   = `{"Action":"start","Package":"p"}` + "\n"
	end     = `{"Action":"pass","Package":"p"}` + "\n"
	endFail = `{"Action":"fail","Package":"p"}` + "\n"
)

func line(action, name string) string {
	return `{"Action":"` + action + `","Package":"p","Test":"` + name + `"}` + "\n"
}

func failure(name, output string) string {
	if output != "" {
		output = `{"Action":"output","Package":"p","Test":"` + name + `","Output":"` + output + `\n"}` + "\n"
	}
	return line("run", name) + output + line("fail", name)
}

func again(name string) string { return line("again", name) }

// flake returns the output of a test that fails, and passes when it is run
// alone.
func flake(name string) string {
	return failure(name, "late") + endFail + again(name) + start + line("pass", name) + end
}

func TestTotals(t *testing.T) {
	for _, tt := range []struct {
		name, allow, in string
		ok              bool
		last            string
		contains        string
	}{
		{"passes", "", start + line("run", "A") + line("pass", "A") + line("run", "A/b") + line("pass", "A/b") + end, true, "2 passed, 0 failed, 0 skipped", ""},
		{"nothing run", "", start + end, false, "0 passed, 0 failed, 0 skipped", ""},
		{"failure with output", "", start + line("run", "A") + `{"Action":"output","Package":"p","Test":"A","Output":"boom\n"}` + "\n" + line("fail", "A") + endFail,
			false, "0 passed, 1 failed, 0 skipped", "FAIL p A\nboom\n"},
		{"skip with a reason", "# why\np B needs a moon\n", start + line("pass", "A") + line("skip", "B") + end, true, "1 passed, 0 failed, 1 skipped", "SKIP p B: needs a moon"},
		{"skip without one", "p C other\n", start + line("pass", "A") + line("skip", "B") + end, false, "1 passed, 0 failed, 1 skipped", "not among the allowed"},
		{"skip of what takes long", "", start + line("pass", "A") + `{"Action":"output","Package":"p","Test":"C","Output":"    a_test.go:3: takes long: run it by its name, or make long\n"}` + "\n" + line("skip", "C") + end,
			true, "1 passed, 0 failed, 1 skipped", "SKIP p C: takes long, and another run has it"},
		{"package without tests", "", start + line("pass", "A") + end + `{"Action":"skip","Package":"q"}` + "\n", true, "1 passed, 0 failed, 0 skipped", ""},
		{"build failure counts once", "", `{"Action":"build-output","ImportPath":"p [p.test]","Output":"x.go:1: odd\n"}` + "\n" + `{"Action":"build-fail","ImportPath":"p [p.test]"}` + "\n" + start + endFail,
			false, "0 passed, 1 failed, 0 skipped", "x.go:1: odd"},
		{"package fails without a test", "", start + line("pass", "A") + endFail, false, "1 passed, 1 failed, 0 skipped", "FAIL p\n"},
		{"killed in the middle", "", start + line("run", "A"), false, "0 passed, 2 failed, 0 skipped", "did not finish"},
		{"the slowest first", "", start + `{"Action":"pass","Package":"p","Test":"A","Elapsed":1.5}` + "\n" + `{"Action":"pass","Package":"p","Test":"B/c","Elapsed":20}` + "\n" +
			`{"Action":"pass","Package":"p","Test":"B","Elapsed":20}` + "\n" + `{"Action":"pass","Package":"p","Elapsed":21.5}` + "\n", true, "3 passed, 0 failed, 0 skipped",
			"TIME   20.0 s p B\nTIME    1.5 s p A\nTIME   21.5 s p\n"},
		{"passes when it is run again", "", start + line("pass", "A") + failure("B", "late") + endFail + again("B") + start + line("run", "B") + line("pass", "B") + end,
			true, "2 passed, 0 failed, 0 skipped", "FLAKY p B: it failed, and passed alone\np B\nlate\n"},
		{"fails again", "", start + line("pass", "A") + failure("B", "late") + endFail + again("B") + start + failure("B", "later") + endFail,
			false, "1 passed, 2 failed, 0 skipped", "FAIL p B\nlater\n"},
		{"does not end again", "", start + failure("B", "late") + endFail + again("B") + start + line("run", "B"),
			false, "0 passed, 2 failed, 0 skipped", "did not finish"},
		{"a subtest failed, and all of its test is run again", "", start + failure("B/c", "late") + failure("B", "") + endFail + again("B") + start + line("pass", "B/c") + line("pass", "B") + end,
			true, "2 passed, 0 failed, 0 skipped", "FLAKY p B: it failed, and passed alone\np B/c\nlate\np B\n"},
		{"another test's failure stays", "", start + failure("A", "wrong") + failure("B", "late") + endFail + again("B") + start + line("pass", "B") + end,
			false, "1 passed, 1 failed, 0 skipped", "FAIL p A\nwrong\n"},
		{"two are flaky", "", start + flake("A") + flake("B"), true, "2 passed, 0 failed, 0 skipped", ""},
		{"three are flaky", "", start + flake("A") + flake("B") + line("pass", "D") + flake("C"), false, "1 passed, 3 failed, 0 skipped", "3 flaky tests are failures"},
		{"plain lines", "", "go: downloading x\n" + start + line("pass", "A") + end, true, "1 passed, 0 failed, 0 skipped", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sum := newTotals()
			if err := sum.allow(strings.NewReader(tt.allow)); err != nil {
				t.Fatal(err)
			}
			if err := sum.add(strings.NewReader(tt.in)); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if ok := sum.report(&out); ok != tt.ok {
				t.Errorf("ok is %v, want %v", ok, tt.ok)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if last := lines[len(lines)-1]; last != tt.last {
				t.Errorf("last line %q, want %q", last, tt.last)
			}
			if !strings.Contains(out.String(), tt.contains) {
				t.Errorf("%q is missing in:\n%s", tt.contains, out.String())
			}
		})
	}
}

// A short run may skip tests that a full run includes.
func TestSkippedInOneRunOnly(t *testing.T) {
	sum := newTotals()
	for _, in := range []string{start + line("pass", "A") + end, start + line("skip", "A") + end} {
		if err := sum.add(strings.NewReader(in)); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if !sum.report(&out) || out.String() != "1 passed, 0 failed, 1 skipped\n" {
		t.Errorf("got %q", out.String())
	}
}

func TestRunsAreSummed(t *testing.T) {
	sum := newTotals()
	for range 2 {
		if err := sum.add(strings.NewReader(start + line("pass", "A") + end)); err != nil {
			t.Fatal(err)
		}
	}
	if len(sum.results) != 2 {
		t.Errorf("two runs of one test count %d", len(sum.results))
	}
}

func TestAllowListNeedsReasons(t *testing.T) {
	if err := newTotals().allow(strings.NewReader("p A\n")); err == nil {
		t.Error("a skip without a reason was allowed")
	}
}

func TestStepsAreReported(t *testing.T) {
	sum := newTotals()
	if err := sum.add(strings.NewReader(start + line("pass", "A") + end)); err != nil {
		t.Fatal(err)
	}
	if err := sum.readSteps(strings.NewReader("3 ok modules\n250 FAILED make check\n")); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if !sum.report(&out) || !strings.HasPrefix(out.String(), "TIME  250.0 s step make check\nTIME    3.0 s step modules\n") {
		t.Errorf("got %s", out.String())
	}
	for _, bad := range []string{"3 ok\n", "soon ok modules\n"} {
		if err := sum.readSteps(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestLastLineIsTheTotals(t *testing.T) {
	sum := newTotals()
	if err := sum.add(strings.NewReader(start + line("pass", "A") + failure("B", "wrong") + endFail)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if sum.report(&out) || !strings.HasSuffix(out.String(), "\n1 passed, 1 failed, 0 skipped\n") {
		t.Errorf("got %s", out.String())
	}
}

func TestJUnit(t *testing.T) {
	sum := newTotals()
	if err := sum.allow(strings.NewReader("p D needs a moon\n")); err != nil {
		t.Fatal(err)
	}
	in := start + `{"Action":"pass","Package":"p","Test":"A","Elapsed":1.5}` + "\n" + failure("B", `a <b> \u001b[1m`) + line("skip", "D") + flake("C")
	if err := sum.add(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if err := sum.readSteps(strings.NewReader("3 ok modules\n250 FAILED make check\n")); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := sum.writeJUnit(&out); err != nil {
		t.Fatal(err)
	}
	const want = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
 <testsuite name="p" tests="4" failures="1" skipped="1" time="1.50">
  <testcase classname="p" name="A" time="1.50"></testcase>
  <testcase classname="p" name="B" time="0.00">
   <failure message="it failed">a &lt;b&gt; [1m&#xA;</failure>
  </testcase>
  <testcase classname="p" name="D" time="0.00">
   <skipped message="needs a moon"></skipped>
  </testcase>
  <testcase classname="p" name="C" time="0.00">
   <flakyFailure message="it failed, and passed alone">p C&#xA;late&#xA;</flakyFailure>
  </testcase>
 </testsuite>
 <testsuite name="steps" tests="2" failures="1" skipped="0" time="253.00">
  <testcase classname="steps" name="modules" time="3.00"></testcase>
  <testcase classname="steps" name="make check" time="250.00">
   <failure message="it failed"></failure>
  </testcase>
 </testsuite>
</testsuites>
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
