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

// mostExported limits the number of exported names in one package, because a
// reader has to keep them apart.
const mostExported = 250

const exportedFile = "testdata/exported.txt"

var writeExported = flag.Bool("write-exported", false, "lower the budget of exported names to what there is")

// exportedNames calls yield with each exported name of a file: constants,
// variables, functions and types, and the methods of exported types.
func exportedNames(f *ast.File, yield func(name string)) {
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name
			if d.Recv == nil {
				if name.IsExported() {
					yield(name.Name)
				}
				continue
			}
			of := d.Recv.List[0].Type
			for {
				switch t := of.(type) {
				case *ast.StarExpr:
					of = t.X
					continue
				case *ast.IndexExpr:
					of = t.X
					continue
				case *ast.IndexListExpr:
					of = t.X
					continue
				}
				break
			}
			if id, ok := of.(*ast.Ident); ok && id.IsExported() && name.IsExported() {
				yield(id.Name + "." + name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						yield(s.Name.Name)
					}
				case *ast.ValueSpec:
					for _, id := range s.Names {
						if id.IsExported() {
							yield(id.Name)
						}
					}
				}
			}
		}
	}
}

// overBudget describes packages with more exported names than their budget. The
// budget of a removed package belongs to all packages of its top-level folder,
// so that merging or moving a package needs no new budget.
func overBudget(count, budget map[string]int) (wrong []string) {
	area := func(pkg string) string { top, _, _ := strings.Cut(pkg, "/"); return top }
	freed, above := map[string]int{}, map[string]int{}
	for pkg, n := range budget {
		if count[pkg] == 0 {
			freed[area(pkg)] += n
		}
	}
	list := map[string][]string{}
	for pkg, n := range count {
		if n > mostExported {
			wrong = append(wrong, fmt.Sprintf("%s exports %d names, at most %d are allowed: unexport some, or split it", pkg, n, mostExported))
		}
		if over := n - budget[pkg]; over > 0 {
			above[area(pkg)] += over
			list[area(pkg)] = append(list[area(pkg)], fmt.Sprintf("%s %d of %d", pkg, n, budget[pkg]))
		}
	}
	for top, over := range above {
		if over > freed[top] {
			slices.Sort(list[top])
			wrong = append(wrong, fmt.Sprintf("packages below %s export %d names more than %s allows: %s", top, over-freed[top], exportedFile, strings.Join(list[top], ", ")))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// No package exports more names than its budget. To lower the budgets, run go
// test ./tests/arch -run TestExportedNames -write-exported.
func TestExportedNamesOnlyBecomeFewer(t *testing.T) {
	count := map[string]int{}
	for _, s := range sources(t) {
		if s.test || s.generated || s.name == "main" || underAny(s.pkg, []string{"tests", "examples", "guest-sdk", "api", "abi", "deploy", "docs"}) || s.pkg == "." {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, s.path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		exportedNames(f, func(string) { count[s.pkg]++ })
	}
	if *writeExported {
		var out bytes.Buffer
		for _, pkg := range slices.Sorted(maps.Keys(count)) {
			fmt.Fprintf(&out, "%s %d\n", pkg, count[pkg])
		}
		if err := os.WriteFile(exportedFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(exportedFile)
	if err != nil {
		t.Fatal(err)
	}
	budget := map[string]int{}
	for line := range strings.Lines(string(text)) {
		pkg, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		if budget[pkg], err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range overBudget(count, budget) {
		t.Error(wrong)
	}
}

func TestExportedNamesAreCounted(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\n\nconst A, b = 1, 2\n\nvar C int\n\ntype D[T any] struct{}\n\ntype e int\n\nfunc (*D[T]) F() {}\nfunc (D[T]) g() {}\nfunc (e) H() {}\nfunc I() {}\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	exportedNames(f, func(name string) { got = append(got, name) })
	if want := []string{"A", "C", "D", "D.F", "I"}; !slices.Equal(got, want) {
		t.Errorf("exported names %v, want %v", got, want)
	}
	for _, tt := range []struct {
		count, budget map[string]int
		wrong         int
	}{
		{map[string]int{"host/a": 3}, map[string]int{"host/a": 3}, 0},
		{map[string]int{"host/a": 4}, map[string]int{"host/a": 3, "journal": 5}, 1},
		{map[string]int{"host/a": 5}, map[string]int{"host/a": 3, "host/b": 2}, 0},
		{map[string]int{"host/c": 2}, map[string]int{"host/b": 2}, 0},
		{map[string]int{"host/a": 6}, map[string]int{"host/a": 3, "host/b": 2}, 1},
		{map[string]int{"host/a": mostExported + 1}, map[string]int{"host/a": mostExported + 1}, 1},
	} {
		if wrong := overBudget(tt.count, tt.budget); len(wrong) != tt.wrong {
			t.Errorf("%v of %v: %q", tt.count, tt.budget, wrong)
		}
	}
}
