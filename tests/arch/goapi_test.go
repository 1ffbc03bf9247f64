package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// goAPIPage lists the packages of the public Go API.
const goAPIPage = "docs/reference/go-api.md"

// goAPI lists the packages of the public Go API. Every package below api/gen
// belongs to it too, except those that only nodes speak to each other.
var goAPI = []string{"abi", "api/client", "api/cursor", "guest-sdk/go", "guest-sdk/go/hostdtest"}

func inGoAPI(pkg string) bool {
	return slices.Contains(goAPI, pkg) || under(pkg, "api/gen") && !under(pkg, "api/gen/hostd/peer")
}

// goAPIRow matches a row of the page's table.
var goAPIRow = regexp.MustCompile("(?m)^\\| \\[`([^`]+)`\\]\\(../../([^)]+)\\) \\|")

// wrongRows compares the page with the packages of the public Go API.
func wrongRows(page string, packages []string) (wrong []string) {
	var listed []string
	for _, m := range goAPIRow.FindAllStringSubmatch(page, -1) {
		if listed = append(listed, m[1]); m[1] != m[2] {
			wrong = append(wrong, fmt.Sprintf("the row of %s leads to %s", m[1], m[2]))
		}
		if !slices.Contains(packages, m[1]) {
			wrong = append(wrong, m[1]+" is listed, but does not belong to the Go API")
		}
	}
	for _, pkg := range packages {
		if !slices.Contains(listed, pkg) {
			wrong = append(wrong, pkg+" belongs to the Go API, but is not listed")
		}
	}
	return wrong
}

func TestPageOfGoAPIListsIt(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, goAPIPage))
	if err != nil {
		t.Fatal(err)
	}
	var packages []string
	for _, s := range sources(t) {
		if !s.test && s.name != "main" && inGoAPI(s.pkg) && !slices.Contains(packages, s.pkg) {
			packages = append(packages, s.pkg)
		}
	}
	for _, pkg := range goAPI {
		if !slices.Contains(packages, pkg) {
			t.Errorf("there is no package %s", pkg)
		}
	}
	for _, w := range wrongRows(string(text), packages) {
		t.Errorf("%s: %s", goAPIPage, w)
	}
	page := "| [`a`](../../a) | |\n| [`b`](../../c) | |\n"
	if got := wrongRows(page, []string{"a", "d"}); len(got) != 3 {
		t.Errorf("the check finds %q", got)
	}
}

// foreignTypes returns the packages of this repository outside the Go API that
// occur in a file's exported declarations: a program that uses the declaration
// would depend on them.
func foreignTypes(f *ast.File) (out []string) {
	foreign := map[string]string{}
	for _, imp := range f.Imports {
		path, err := strconv.Unquote(imp.Path.Value)
		pkg, own := strings.CutPrefix(path, repository+"/")
		if err != nil || !own || inGoAPI(pkg) {
			continue
		}
		name := pkg[strings.LastIndex(pkg, "/")+1:]
		if imp.Name != nil {
			name = imp.Name.Name
		}
		foreign[name] = pkg
	}
	visible := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			return len(n.Names) == 0 || slices.ContainsFunc(n.Names, func(id *ast.Ident) bool { return id.IsExported() })
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && foreign[id.Name] != "" {
				out = append(out, foreign[id.Name]+"."+n.Sel.Name)
			}
		}
		return true
	}
	signature := func(n ast.Node) bool { // parameters count, whatever their names
		if sel, ok := n.(*ast.SelectorExpr); ok {
			return visible(sel)
		}
		return true
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || exportedReceiver(d.Recv.List[0].Type)) {
				ast.Inspect(d.Type, signature)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						ast.Inspect(s.Type, visible)
					}
				case *ast.ValueSpec:
					if s.Type != nil && slices.ContainsFunc(s.Names, func(id *ast.Ident) bool { return id.IsExported() }) {
						ast.Inspect(s.Type, signature)
					}
				}
			}
		}
	}
	return out
}

func exportedReceiver(of ast.Expr) bool {
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return false
		}
	}
}

// The Go API does not lead to packages that may change in any release.
func TestGoAPIHasNoTypesOfOtherPackages(t *testing.T) {
	parse := func(path string, src any) *ast.File {
		t.Helper()
		f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, s := range sources(t) {
		if s.test || s.generated || !inGoAPI(s.pkg) {
			continue
		}
		for _, typ := range foreignTypes(parse(filepath.Join(root, s.path), nil)) {
			t.Errorf("%s: an exported declaration contains %s, which does not belong to the Go API", s.path, typ)
		}
	}
	const example = `package p
import ("` + repository + `/host/entity"; cursor "` + repository + `/journal"; "` + repository + `/abi")
type A struct { Shown entity.T; hidden entity.T }
type b struct { Shown entity.T }
func F(c cursor.T) abi.Frame
func (b) G(entity.T)
var V, w entity.U
var h entity.T`
	if got, want := foreignTypes(parse("p.go", example)), []string{"host/entity.T", "journal.T", "host/entity.U"}; !slices.Equal(got, want) {
		t.Errorf("the check finds %q, want %q", got, want)
	}
}
