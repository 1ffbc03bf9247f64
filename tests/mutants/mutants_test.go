package mutants

import (
	"bytes"
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"testing"
)

const root = "../.."

var plant = flag.Bool("plant", false, "plant each fault of the catalog in turn; tests must fail on it")

// violation is what the simulator prints of a seed that failed.
var violation = regexp.MustCompile(`seed \d+ step \d+: \S.*`)

func TestMutantsAreCaught(t *testing.T) {
	if !*plant {
		t.Skip("needs -plant: builds the tests once for each fault")
	}
	all, err := catalog(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			overlay, err := Overlay(root, t.TempDir(), "mutants/catalog/"+f.name+".txt")
			if err != nil {
				t.Fatal(err)
			}
			if f.seeds > 0 {
				out, failed := run(t, overlay, "./tests/sim", "-run=^TestSeeds$", fmt.Sprintf("-seeds=%d", f.seeds))
				found := violation.Find(out)
				if !failed || found == nil {
					t.Errorf("%s The simulator does not find it in %d seeds:\n%s", f.says, f.seeds, tail(out))
				}
				t.Logf("the simulator finds it: %s", found)
			}
			for _, args := range f.tests {
				if out, failed := run(t, overlay, args...); failed {
					t.Logf("%s finds it: %s", args[0], regexp.MustCompile(`--- FAIL: \S+`).Find(out))
					return
				}
			}
			if len(f.tests) > 0 {
				t.Errorf("%s No test of %v finds it.", f.says, f.tests)
			}
		})
	}
}

// run runs tests with what the overlay replaces, and reports what they printed
// and whether one of them failed. A program is linked without what debuggers
// need, and vet, which could find nothing but the fault's text, is left out:
// each is a fifth of what a fault costs.
func run(t *testing.T, overlay string, args ...string) (out []byte, failed bool) {
	t.Helper()
	args = append([]string{"test", "-count=1", "-failfast", "-timeout=10m", "-vet=off", "-ldflags=-w", "-overlay", overlay}, args...)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err == nil {
		return out, false
	}
	// A fault that does not build would be found by the compiler only.
	if bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")) {
		t.Fatalf("go %v: the fault does not build:\n%s", args, out)
	}
	if !bytes.Contains(out, []byte("--- FAIL")) && !bytes.Contains(out, []byte("panic: ")) {
		t.Fatalf("go %v failed without a failing test: %v\n%s", args, err, out)
	}
	return out, true
}

// tail is the end of what a command printed.
func tail(out []byte) []byte { return out[max(0, len(out)-4096):] }
