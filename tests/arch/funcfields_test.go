package arch

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const funcFieldsFile = "testdata/funcfields.txt"

var writeFuncFields = flag.Bool("write-func-fields", false, "lower the budget of func-typed struct fields to what there is")

// funcFields returns the number of struct fields in a file whose type is written
// as a func type. A field whose type is a named func type does not count.
func funcFields(f *ast.File) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		s, ok := node.(*ast.StructType)
		if !ok {
			return true
		}
		for _, field := range s.Fields.List {
			if _, isFunc := field.Type.(*ast.FuncType); isFunc {
				n += len(field.Names)
			}
		}
		return true
	})
	return n
}

// No top-level folder has more func-typed struct fields than its budget. Such
// fields are for callbacks and clocks; parts are wired by interfaces, so that a
// reader finds the methods. To lower the budgets, run go test ./tests/arch -run
// TestFuncFieldsOnlyBecomeFewer -write-func-fields.
func TestFuncFieldsOnlyBecomeFewer(t *testing.T) {
	count := map[string]int{}
	for _, s := range sources(t) {
		if s.test || s.generated || underAny(s.pkg, []string{"tests", "examples", "guest-sdk", "api", "abi", "deploy", "docs"}) || s.pkg == "." {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, s.path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		top, _, _ := strings.Cut(s.pkg, "/")
		count[top] += funcFields(f)
	}
	if *writeFuncFields {
		var out bytes.Buffer
		for _, top := range slices.Sorted(maps.Keys(count)) {
			fmt.Fprintf(&out, "%s %d\n", top, count[top])
		}
		if err := os.WriteFile(funcFieldsFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(funcFieldsFile)
	if err != nil {
		t.Fatal(err)
	}
	budget := map[string]int{}
	for line := range strings.Lines(string(text)) {
		top, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		if budget[top], err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	for top, n := range count {
		if n > budget[top] {
			t.Errorf("%s has %d func-typed struct fields, %s allows %d: declare an interface where the functions are used", top, n, funcFieldsFile, budget[top])
		}
	}
}

func TestFuncFieldsAreCounted(t *testing.T) {
	const text = "package a\n\ntype A struct {\n\tB, c func()\n\td struct{ e func(int) }\n\tf named\n\tg map[string]func()\n}\n\ntype named func()\n\nfunc h() { _ = []struct{ i func() }{} }\n"
	f, err := parser.ParseFile(token.NewFileSet(), "a.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := funcFields(f); n != 4 {
		t.Errorf("%d func-typed fields, want 4", n)
	}
}
