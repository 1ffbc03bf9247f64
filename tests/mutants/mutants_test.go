package mutants

import (
	"bytes"
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"sync"
	"testing"
)

const root = "../.."

var plant = flag.String("plant", "", "plant `which` faults of the catalog in turn, all or changed; tests must fail on each")

// violation matches the simulator's output for a seed that failed.
var violation = regexp.MustCompile(`seed \d+ step \d+: \S.*`)

// TestMutantsAreCaught plants the faults of the catalog and records the hashes
// of the faults that tests have found. With -plant=changed it plants only the
// faults that have changed since then, and a tenth of the others.
func TestMutantsAreCaught(t *testing.T) {
	if *plant == "" {
		t.Skip("needs -plant: builds the tests once for each fault")
	}
	if *plant != "all" && *plant != "changed" {
		t.Fatalf("-plant=%s is neither all nor changed", *plant)
	}
	all, err := catalog(root)
	if err != nil {
		t.Fatal(err)
	}
	before, err := readHashes(root)
	if err != nil {
		t.Fatal(err)
	}
	turn := turnOf(root)
	var mu sync.Mutex
	found := map[string]string{}
	t.Run("planted", func(t *testing.T) {
		for i, f := range all {
			hash, err := f.hash(root)
			if err != nil {
				t.Fatal(err)
			}
			why := due(i, hash, before[f.name], turn)
			if why == "" && *plant == "changed" {
				continue
			}
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				t.Logf("%s (%s)", f.says, why)
				f.mustBeFound(t)
				if !t.Failed() {
					mu.Lock()
					defer mu.Unlock()
					found[f.name] = hash
				}
			})
		}
	})
	t.Logf("%d of %d faults were planted and found", len(found), len(all))
	if *plant == "all" {
		if err := writeHashes(root, all, found); err != nil {
			t.Fatal(err)
		}
	}
}

// mustBeFound plants the fault, and fails unless some test fails on it.
func (f fault) mustBeFound(t *testing.T) {
	overlay, err := Overlay(root, t.TempDir(), "mutants/catalog/"+f.name+".txt")
	if err != nil {
		t.Fatal(err)
	}
	if f.seeds > 0 {
		out, failed := run(t, overlay, "./tests/sim", "-run=^TestSeeds$", fmt.Sprintf("-seeds=%d", f.seeds))
		at := violation.Find(out)
		if !failed || at == nil {
			t.Errorf("the simulator does not find it in %d seeds:\n%s", f.seeds, tail(out))
		}
		t.Logf("the simulator finds it: %s", at)
	}
	for _, args := range f.tests {
		if out, failed := run(t, overlay, args...); failed {
			t.Logf("%s finds it: %s", args[0], regexp.MustCompile(`--- FAIL: \S+`).Find(out))
			return
		}
	}
	if len(f.tests) > 0 {
		t.Errorf("no test of %v finds it", f.tests)
	}
}

// run runs tests with a fault planted, and returns their output and whether a
// test failed. It links without debug information and skips vet, which could
// only find the fault itself. Each of these two measures saves a fifth of the
// time.
func run(t *testing.T, overlay string, args ...string) (out []byte, failed bool) {
	t.Helper()
	args = append([]string{"test", "-count=1", "-failfast", "-timeout=10m", "-vet=off", "-ldflags=-w", "-overlay", overlay}, args...)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err == nil {
		return out, false
	}
	// If the code with the fault does not build, no test has found the fault.
	if bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")) {
		t.Fatalf("go %v: the fault does not build:\n%s", args, out)
	}
	if !bytes.Contains(out, []byte("--- FAIL")) && !bytes.Contains(out, []byte("panic: ")) {
		t.Fatalf("go %v failed without a failing test: %v\n%s", args, err, out)
	}
	return out, true
}

// tail returns the end of a command's output.
func tail(out []byte) []byte { return out[max(0, len(out)-4096):] }
