package mutants

import (
	"slices"
	"testing"
)

func TestSwitchedOnBy(t *testing.T) {
	for text, want := range map[string][]string{
		"//go:build mutant_2\n\npackage p\n":                   {"mutant_2"},
		"//go:build !mutant_2\n\npackage p\n":                  nil,
		"//go:build !mutant_2 && !mutant_3\n\npackage p\n":     nil,
		"//go:build mutant_2 || mutant_3\n\npackage p\n":       {"mutant_2", "mutant_3"},
		"package p\n\nconst s = `\n//go:build mutant_2\n`\n":   nil,
		"//go:build linux\n\npackage p\n":                      nil,
		"// Text.\n\n//go:build mutant_12\n\npackage p // x\n": {"mutant_12"},
	} {
		if got := switchedOnBy(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestFindsPlantedFaults(t *testing.T) {
	all, err := find("../..")
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(m mutant) bool { return m.tag == "mutant_2" })
	if at < 0 || !slices.Contains(all[at].packages, "./journal/wal") || !slices.Contains(all[at].packages, "./"+simulator) {
		t.Errorf("the fault planted in the log is not found: %+v", all)
	}
}
