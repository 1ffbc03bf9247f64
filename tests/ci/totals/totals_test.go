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
		{"package without tests", "", start + line("pass", "A") + end + `{"Action":"skip","Package":"q"}` + "\n", true, "1 passed, 0 failed, 0 skipped", ""},
		{"build failure counts once", "", `{"Action":"build-output","ImportPath":"p [p.test]","Output":"x.go:1: odd\n"}` + "\n" + `{"Action":"build-fail","ImportPath":"p [p.test]"}` + "\n" + start + endFail,
			false, "0 passed, 1 failed, 0 skipped", "x.go:1: odd"},
		{"package fails without a test", "", start + line("pass", "A") + endFail, false, "1 passed, 1 failed, 0 skipped", "FAIL p\n"},
		{"killed in the middle", "", start + line("run", "A"), false, "0 passed, 2 failed, 0 skipped", "did not finish"},
		{"the slowest first", "", start + `{"Action":"pass","Package":"p","Test":"A","Elapsed":1.5}` + "\n" + `{"Action":"pass","Package":"p","Test":"B/c","Elapsed":20}` + "\n" +
			`{"Action":"pass","Package":"p","Test":"B","Elapsed":20}` + "\n" + `{"Action":"pass","Package":"p","Elapsed":21.5}` + "\n", true, "3 passed, 0 failed, 0 skipped",
			"TIME   21.5 s p\nTIME   20.0 s p B\nTIME    1.5 s p A\n"},
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

// A short run may skip what a full run has.
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

func TestRunsAddUp(t *testing.T) {
	sum := newTotals()
	for range 2 {
		if err := sum.add(strings.NewReader(start + line("pass", "A") + end)); err != nil {
			t.Fatal(err)
		}
	}
	if sum.passed != 2 {
		t.Errorf("two runs of one test count %d", sum.passed)
	}
}

func TestAllowListNeedsReasons(t *testing.T) {
	if err := newTotals().allow(strings.NewReader("p A\n")); err == nil {
		t.Error("a skip without a reason was allowed")
	}
}
