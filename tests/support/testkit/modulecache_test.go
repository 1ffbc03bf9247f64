package testkit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompiledModulesAreShared checks that a node starts with the modules that
// nodes of its own package have compiled and with modules that two packages
// have compiled. Starting with a module does not count as having compiled it.
func TestCompiledModulesAreShared(t *testing.T) {
	t.Setenv(buildsVariable, t.TempDir())
	const one, other = "wazero-v/one", "wazero-v/other"
	// node simulates a node of a package that compiles the modules that it needs
	// and does not have.
	node := func(pkg string, needs ...string) (dir string, had []string) {
		t.Helper()
		dir = filepath.Join(t.TempDir(), "data")
		if err := giveCache(pkg, dir); err != nil {
			t.Fatal(err)
		}
		cache := filepath.Join(dir, cacheDir)
		list, err := readSeals(cache)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{one, other} {
			_, missing := os.Stat(filepath.Join(cache, name))
			if (list[name] != "") != (missing == nil) {
				t.Errorf("%s, with %s in the list: %q, its file: %v", pkg, name, list[name], missing)
			}
			if missing == nil {
				had = append(had, name)
			}
		}
		for _, name := range needs {
			if list[name] == "" {
				mark := filepath.Join(passed, filepath.Base(name))
				if err := errors.Join(replaceFile(filepath.Join(cache, name), []byte("code of "+name)), replaceFile(filepath.Join(cache, mark), nil)); err != nil {
					t.Fatal(err)
				}
				list[name] = "seal " + name + "\n"
			}
		}
		if err := errors.Join(os.MkdirAll(cache, 0o700), writeSeals(cache, list), keepCache(pkg, dir)); err != nil {
			t.Fatal(err)
		}
		return dir, had
	}
	for _, step := range []struct {
		pkg   string
		needs string
		had   string
	}{
		{"a", one, ""},
		{"a", one + " " + other, one},
		{"a", one, one + " " + other},
		{"b", one, ""},
		{"c", "", one},
		{"c", "", one}, // the first node of the package has compiled nothing
		{"b", other, one},
		{"d", "", one + " " + other},
	} {
		if _, had := node(step.pkg, strings.Fields(step.needs)...); strings.Join(had, " ") != step.had {
			t.Errorf("a node of %s that needs %q begins with %q, not %q", step.pkg, step.needs, had, step.had)
		}
	}

	// Within a file system, files are linked instead of copied.
	first, _ := node("a")
	second, _ := node("b")
	for _, name := range []string{one, filepath.Join(passed, "one")} {
		a, err := os.Stat(filepath.Join(first, cacheDir, name))
		b, err2 := os.Stat(filepath.Join(second, cacheDir, name))
		if err != nil || err2 != nil || !os.SameFile(a, b) {
			t.Errorf("%s of two nodes is not one file: %v, %v", name, err, err2)
		}
	}

	// Other nodes cannot use modules that a node has sealed with its own key.
	dir := filepath.Join(t.TempDir(), "data")
	mine := filepath.Join(dir, cacheDir, "wazero-v/mine")
	if err := errors.Join(replaceFile(mine, nil), os.WriteFile(filepath.Join(dir, cacheKey), []byte("own"), 0o600),
		writeSeals(filepath.Join(dir, cacheDir), map[string]string{"wazero-v/mine": "seal wazero-v/mine\n"}), keepCache("a", dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(os.Getenv(buildsVariable), cacheDir, "wazero-v/mine")); err == nil {
		t.Error("a module is kept that is sealed with another key")
	}
}
