package main

import (
	"go/ast"
	"go/token"
	"os"
	"strings"
	"testing"
)

// A function that does not exist on one system is reported as an error only for
// that system.
func TestCheckFindsFunctionMissingOnOneSystem(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod":        "module example.com/p\n\ngo 1.26\n",
		"p.go":          "package main\n\nimport \"syscall\"\n\nfunc main() { _ = syscall.Kill(1, syscall.SIGTERM); wait() }\n",
		"wait_unix.go":  "//go:build unix\n\npackage main\n\nfunc wait() {}\n",
		"wait_other.go": "//go:build !unix\n\npackage main\n\nfunc wait() {}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ system, want string }{{"linux", ""}, {"windows", "undefined: syscall.Kill"}} {
		c := checker{fset: token.NewFileSet(), parsed: map[string]*ast.File{}}
		err := c.check(append(os.Environ(), "GOOS="+tt.system, "GOARCH=amd64", "CGO_ENABLED=0"), "amd64", ".")
		if got := errorText(err); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.system, got, tt.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
