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
			for _, tags := range []string{"", m.tag} {
				build := exec.Command("go", append([]string{"vet", "-tags", tags}, m.packages...)...)
				build.Dir = root
				if out, err := build.CombinedOutput(); err != nil {
					t.Fatalf("%s does not build with tags %q: %v\n%s", m.packages, tags, err, out)
				}
			}
			test := exec.Command("go", append([]string{"test", "-count=1", "-json", "-timeout=5m", "-tags", m.tag}, m.packages...)...)
			test.Dir = root
			out, err := test.CombinedOutput()
			if err == nil {
				t.Fatalf("no test of %v fails on the planted fault", m.packages)
			}
			if !bytes.Contains(out, []byte(`"Action":"fail"`)) || bytes.Contains(out, []byte(`"Action":"build-fail"`)) {
				t.Fatalf("go test failed for another reason: %v\n%s", err, out)
			}
		})
	}
}
