package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/tests/support/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

func TestReferenceIsCurrent(t *testing.T) {
	for name, write := range generated {
		want, err := write("../../..")
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the code says: run make reference", name)
		}
	}
}

func TestLimitNumbersMatchCode(t *testing.T) {
	n, err := numbersOf("testdata/limits")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"most": "4 KiB", "Patience": "2 minutes", "Queue": "1,024", "twice": "", "missing": ""} {
		v, err := n.value(name)
		unit := map[string]string{"most": "bytes", "Patience": "time"}[name]
		if got := show(v, unit); (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("%s is %s, %v; not %q", name, got, err, want)
		}
	}
}

// TestCommandReferenceIsCurrent compares the page with the commands of the
// program, so that it fails if a command or flag is added, renamed or removed
// without updating the page.
func TestCommandReferenceIsCurrent(t *testing.T) {
	described, err := exec.Command(testkit.Program(t), "commands").Output()
	if err != nil {
		t.Fatal(err)
	}
	want, err := commands(described)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("../../..", commandsPage))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the commands of hostd: run make reference", commandsPage)
	}
	for _, heading := range []string{"\n### hostd cluster upgrade finalize\n", "\n## hostd serve\n", "\n| `--addr` | "} {
		if !strings.Contains(want, heading) {
			t.Errorf("the page has no %q", heading)
		}
	}
}
