package main

import (
	"os"
	"path/filepath"
	"testing"
)

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
