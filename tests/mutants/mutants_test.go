//go:build mutants

package mutants

import (
	"bytes"
	"os/exec"
	"testing"
)

const root = "../.."

func TestMutantsAreCaught(t *testing.T) {
	all, err := find(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no mutant is planted: the search is wrong")
	}
	for _, m := range all {
		t.Run(m.tag, func(t *testing.T) {
			// A mutant that does not build would be caught by the compiler only.
			command(t, append([]string{"vet", "-tags", m.tag}, m.packages...)...)
			for _, pkg := range m.packages {
				if caught(t, m.tag, pkg) {
					t.Logf("caught by the tests of %s", pkg)
					return
				}
			}
			t.Fatalf("no test of %v fails on the planted fault", m.packages)
		})
	}
}

// command runs a go command that must succeed.
func command(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
}

// caught reports whether a test of the package fails with the fault planted.
func caught(t *testing.T, tag, pkg string) bool {
	t.Helper()
	args := []string{"test", "-count=1", "-json", "-failfast", "-timeout=10m", "-tags", tag, pkg}
	if pkg == "./"+simulator {
		args = append(args, "-run=^TestSeeds$", "-seeds="+simulatorSeeds)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if !bytes.Contains(out, []byte(`"Action":"fail"`)) || bytes.Contains(out, []byte(`"Action":"build-fail"`)) {
		t.Fatalf("go %v failed without a failing test: %v\n%s", args, err, out)
	}
	return true
}

// simulatorSeeds is how many seeds the simulator gets to find a fault.
const simulatorSeeds = "300"
