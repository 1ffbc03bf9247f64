package mutants

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTableOfHashes(t *testing.T) {
	hashes, err := readHashes(root)
	if err != nil || len(hashes) == 0 {
		t.Fatalf("%d hashes: %v", len(hashes), err)
	}
	dir := t.TempDir()
	for _, file := range []string{"a.go", hashesFile} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a.go", "one\n")
	write(hashesFile, "gone 00\nkept 11\n")
	f := fault{name: "found", text: "a text", edits: []edit{{"a.go", "one", "two"}}}
	hash := func() string {
		t.Helper()
		h, err := f.hash(dir)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first := hash()
	if err := writeHashes(dir, []fault{f, {name: "kept"}, {name: "new"}}, map[string]string{"found": first}); err != nil {
		t.Fatal(err)
	}
	got, err := readHashes(dir)
	if err != nil || len(got) != 2 || got["found"] != first || got["kept"] != "11" {
		t.Errorf("the table is %v: %v", got, err)
	}
	write("a.go", "// A comment.\none // line\n")
	if commented := hash(); commented != first {
		t.Errorf("hash %s became %s by comments", first, commented)
	}
	write("a.go", "one more\n")
	second := hash()
	f.text = "another text"
	if third := hash(); second == first || third == second {
		t.Errorf("hashes %s, %s with another file, %s with another text", first, second, third)
	}
}

func TestFaultsAreDue(t *testing.T) {
	for _, tt := range []struct {
		i, turn      int
		hash, before string
		want         bool
	}{
		{0, 5, "a", "", true},
		{0, 5, "a", "b", true},
		{0, 5, "a", "a", false},
		{5, 5, "a", "a", true},
		{25, 5, "a", "a", true},
	} {
		if why := due(tt.i, tt.hash, tt.before, tt.turn); (why != "") != tt.want {
			t.Errorf("%+v: %q", tt, why)
		}
	}
	for _, tt := range []struct {
		shallow, count, commit string
		want                   int
	}{
		{"false", "1234", "0000000f0000", 4},
		{"true", "1", "0000000f0000", 5},
		{"", "", "0000000f0000", 5},
		{"", "", "", 0},
	} {
		if n := turn(tt.shallow, tt.count, tt.commit); n != tt.want {
			t.Errorf("%+v: turn %d", tt, n)
		}
	}
}
