// Package breaking checks that api/generate.sh notices changes of the API that
// break clients of the baseline. It contains only tests.
package breaking

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const api = "../../../api"

// copied returns a copy of the protos and the tools of api.
func copied(t *testing.T) string {
	t.Helper()
	tools, err := filepath.Abs(filepath.Join(api, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(tools, ".bin", "buf")); err != nil {
		t.Skip("needs buf: npm ci in api")
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "proto"), os.DirFS(filepath.Join(api, "proto"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"generate.sh", "buf.yaml", "buf.gen.yaml", "buf.gen.ts.yaml"} {
		content, err := os.ReadFile(filepath.Join(api, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(tools, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestBreakingChangesFailTheCheck writes a baseline and then changes the API.
// If a field gets a different number, the check fails before any code is
// compared, except in the API between nodes.
func TestBreakingChangesFailTheCheck(t *testing.T) {
	const breaks = "breaks clients of the previous release"
	for name, tt := range map[string]struct {
		file  string
		fails bool
	}{
		"no change":    {"", false},
		"public field": {"hostd/entity/v1/entity.proto", true},
		"peer field":   {"hostd/peer/v1/peer.proto", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copied(t)
			if out, err := exec.Command("sh", filepath.Join(dir, "generate.sh"), "baseline").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if tt.file != "" {
				path := filepath.Join(dir, "proto", tt.file)
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				changed := renumbered(text)
				if bytes.Equal(changed, text) {
					t.Fatalf("%s has no field to change", tt.file)
				}
				if err := os.WriteFile(path, changed, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			// The check then compares generated code, which the copy does not have.
			out, err := exec.Command("sh", filepath.Join(dir, "generate.sh"), "check").CombinedOutput()
			if err == nil {
				t.Fatal("the check passes without generated code")
			}
			if strings.Contains(string(out), breaks) != tt.fails {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// renumbered changes the first field with number 1 in a file to a number that
// no message uses.
func renumbered(text []byte) []byte {
	return bytes.Replace(text, []byte(" = 1;"), []byte(" = 900;"), 1)
}
