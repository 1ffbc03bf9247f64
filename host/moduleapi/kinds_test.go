package moduleapi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/sharding/meta"
)

// TestEveryKindOfChangeHasAKindOfTheAPI: a kind that is stored and missing in
// the table would be shown as unspecified, and so would a kind whose name
// changed.
func TestEveryKindOfChangeHasAKindOfTheAPI(t *testing.T) {
	seen := map[modulev1.ActivationChange_Kind]bool{}
	for _, kind := range constantsOf(t, filepath.Join("..", "..", "sharding", "meta", "changes.go"), "ChangeKind") {
		to := changeKinds[meta.ChangeKind(kind)]
		if to == modulev1.ActivationChange_KIND_UNSPECIFIED || seen[to] {
			t.Errorf("the stored kind %q becomes %v", kind, to)
		}
		seen[to] = true
	}
	kinds := modulev1.ActivationChange_KIND_UNSPECIFIED.Descriptor().Values()
	if len(seen) != kinds.Len()-1 || len(changeKinds) != len(seen) {
		t.Errorf("%d stored kinds, %d kinds of the API, %d in the table", len(seen), kinds.Len()-1, len(changeKinds))
	}
}

// constantsOf returns the values of the string constants of a type in a file.
func constantsOf(t *testing.T, path, ofType string) (out []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); !ok || name.Name != ofType {
			return true
		}
		for _, v := range spec.Values {
			if lit, ok := v.(*ast.BasicLit); ok {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, text)
			}
		}
		return true
	})
	if len(out) == 0 {
		t.Fatalf("%s has no constants of the type %s", path, ofType)
	}
	return out
}
