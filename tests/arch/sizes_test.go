package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sizes counts what every package and every type (package.Type) of the product
// has.
func sizes(t *testing.T) map[string]size {
	t.Helper()
	out := map[string]size{}
	add := func(name string, more size) {
		s := out[name]
		s.files, s.lines = s.files+more.files, s.lines+more.lines
		s.methods, s.fields = s.methods+more.methods, s.fields+more.fields
		out[name] = s
	}
	for _, s := range sources(t) {
		if s.test || s.generated || under(s.pkg, "tests") {
			continue
		}
		add(s.pkg, size{files: 1, lines: s.lines})
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, s.path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					add(s.pkg+"."+receiver(d.Recv.List[0].Type), size{methods: 1})
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if ts, ok := spec.(*ast.TypeSpec); ok {
						if st, ok := ts.Type.(*ast.StructType); ok && !isList(ts.Name.Name) {
							add(s.pkg+"."+ts.Name.Name, size{fields: st.Fields.NumFields()})
						}
					}
				}
			}
		}
	}
	return out
}

func isList(name string) bool {
	return slices.ContainsFunc(lists, func(end string) bool { return strings.HasSuffix(name, end) })
}

// receiver is the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// beyond lists what of s is above the bounds, or above what is allowed, where
// that is more.
func beyond(s, allowed size) []string {
	var out []string
	for _, b := range []struct {
		what       string
		has, bound int
	}{
		{"files", s.files, max(maxPackageFiles, allowed.files)},
		{"lines", s.lines, max(maxPackageLines, allowed.lines)},
		{"methods", s.methods, max(maxMethods, allowed.methods)},
		{"fields", s.fields, max(maxFields, allowed.fields)},
	} {
		if b.has > b.bound {
			out = append(out, fmt.Sprintf("%d %s, at most %d are allowed", b.has, b.what, b.bound))
		}
	}
	return out
}

func TestPackagesAndTypesAreSmall(t *testing.T) {
	all := sizes(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if found := beyond(all[name], oversized[name]); len(found) > 0 {
			t.Errorf("%s has %s: split it by subject", name, strings.Join(found, ", "))
		}
	}
}

// What is within the bounds needs no exception.
func TestExceptionsOfSizeShrink(t *testing.T) {
	all := sizes(t)
	for _, name := range slices.Sorted(maps.Keys(oversized)) {
		has, allowed := all[name], oversized[name]
		for _, b := range []struct {
			what                string
			has, allowed, bound int
		}{
			{"files", has.files, allowed.files, maxPackageFiles},
			{"lines", has.lines, allowed.lines, maxPackageLines},
			{"methods", has.methods, allowed.methods, maxMethods},
			{"fields", has.fields, allowed.fields, maxFields},
		} {
			switch {
			case b.allowed == 0:
			case b.has <= b.bound:
				t.Errorf("%s has %d %s, which needs no exception: take %d out of the list", name, b.has, b.what, b.allowed)
			}
		}
	}
}

func TestRulesOfSizeFire(t *testing.T) {
	if len(beyond(size{files: 31, lines: 4501, methods: 61, fields: 26}, size{})) != 4 {
		t.Error("what is above the bounds is not found")
	}
	if len(beyond(size{files: 30, lines: 5000, methods: 60, fields: 25}, size{lines: 5000})) != 0 {
		t.Error("what is allowed is found")
	}
}
