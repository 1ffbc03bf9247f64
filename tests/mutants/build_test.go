package mutants

import (
	"strings"
	"testing"
)

// TestFaultsBuild checks that each fault compiles, because a fault that only
// the compiler finds says nothing about the tests.
func TestFaultsBuild(t *testing.T) {
	all, err := catalog(root)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBuilder(root, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if err := b.check(f); err != nil {
			t.Errorf("%s does not build:\n%v", f.name, err)
		}
	}
}

func TestFaultThatDoesNotBuildIsFound(t *testing.T) {
	const file = "tests/mutants/mutants.go"
	plant := func(text string) fault {
		return fault{name: "f", edits: []edit{{file, "package mutants\n", "package mutants\n" + text}}}
	}
	b, err := newBuilder(root, []fault{plant("")})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                                  "",
		"func more(a int) int { return a }": "",
		"import \"os\"":                     "imported and not used",
		"func more() { a := 1 }":            "declared and not used",
		"func more() { parse(1) }":          "not enough arguments",
		"func root() {}":                    "redeclared", // in a test file
		"func more( {":                      "expected",
	} {
		switch err := b.check(plant(text)); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
