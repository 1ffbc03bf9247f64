package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/hostd/hostd/host/config"
)

// limitsTemplate is the text of the page. For a number it names the source of
// the value, such as {{abi.EventBytes bytes}}.
const limitsTemplate = "tests/ci/reference/limits.tmpl"

var wanted = regexp.MustCompile(`\{\{([a-z0-9/]+)\.([A-Za-z0-9-]+)( bytes| time)?\}\}`)

// limits fills in the numbers of the template.
func limits(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, limitsTemplate))
	if err != nil {
		return "", err
	}
	keys := map[string]string{}
	c := config.Default()
	for _, f := range c.Fields() {
		keys[f.Name] = f.String()
	}
	packages := map[string]*numbers{}
	fail := func(format string, args ...any) string {
		err = errors.Join(err, fmt.Errorf(limitsTemplate+": "+format, args...))
		return ""
	}
	out := wanted.ReplaceAllStringFunc(string(text), func(place string) string {
		m := wanted.FindStringSubmatch(place)
		pkg, name, unit := m[1], m[2], strings.TrimSpace(m[3])
		if pkg == "config" {
			value, ok := keys[name]
			if !ok {
				return fail("no key of the configuration is called %s", name)
			}
			return key(value)
		}
		if packages[pkg] == nil {
			n, bad := numbersOf(filepath.Join(root, pkg))
			if bad != nil {
				return fail("%w", bad)
			}
			packages[pkg] = n
		}
		value, bad := packages[pkg].value(name)
		if bad != nil {
			return fail("%s.%s: %w", pkg, name, bad)
		}
		return show(value, unit)
	})
	return out, err
}

// key formats the default of a configuration key.
func key(value string) string {
	if d, err := time.ParseDuration(value); err == nil && value != "0" {
		return show(int64(d), "time")
	}
	for _, unit := range []string{"KiB", "MiB", "GiB"} {
		if n, ok := strings.CutSuffix(value, unit); ok {
			return n + " " + unit
		}
	}
	var n int64
	if _, err := fmt.Sscan(value, &n); err == nil && fmt.Sprint(n) == value {
		return show(n, "")
	}
	return value
}

// show formats a number with a unit that suits readers.
func show(n int64, unit string) string {
	switch unit {
	case "time":
		d := time.Duration(n)
		switch {
		case d >= time.Hour && d%time.Hour == 0:
			return fmt.Sprintf("%d h", d/time.Hour)
		case d > time.Minute && d%time.Minute == 0:
			return fmt.Sprintf("%d minutes", d/time.Minute)
		case d%time.Second == 0:
			return fmt.Sprintf("%d s", d/time.Second)
		}
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case "bytes":
		for _, u := range []struct {
			bytes int64
			name  string
		}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
			if n >= u.bytes && n%u.bytes == 0 {
				return fmt.Sprintf("%d %s", n/u.bytes, u.name)
			}
		}
		return show(n, "") + " bytes"
	}
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// numbers are the limits in a package: constants, default values of option
// fields, and fields of literals.
type numbers struct {
	constants map[string]ast.Expr
	defaults  map[string][]ast.Expr
}

func numbersOf(dir string) (*numbers, error) {
	n := &numbers{constants: map[string]ast.Expr{}, defaults: map[string][]ast.Expr{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(f, n.read)
	}
	return n, nil
}

// read records the constants, the fields of literals, and calls such as
// def(&o.Field, value).
func (n *numbers) read(node ast.Node) bool {
	switch d := node.(type) {
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.CONST {
				for i, value := range v.Values {
					n.constants[v.Names[i].Name] = value
				}
			}
		}
	case *ast.KeyValueExpr:
		if name, ok := d.Key.(*ast.Ident); ok {
			n.defaults[name.Name] = append(n.defaults[name.Name], d.Value)
		}
	case *ast.CallExpr:
		if len(d.Args) != 2 {
			break
		}
		field := d.Args[0]
		if u, ok := field.(*ast.UnaryExpr); ok {
			field = u.X
		}
		if s, ok := field.(*ast.SelectorExpr); ok {
			n.defaults[s.Sel.Name] = append(n.defaults[s.Sel.Name], d.Args[1])
		}
	}
	return true
}

// value returns the number that has the given name in the package. It is an
// error if there are several.
func (n *numbers) value(name string) (int64, error) {
	exprs := n.defaults[name]
	if e, ok := n.constants[name]; ok {
		exprs = []ast.Expr{e}
	}
	found := map[int64]bool{}
	var out int64
	for _, e := range exprs {
		if v := n.number(e, 0); v.Kind() == constant.Int {
			out, _ = constant.Int64Val(v)
			found[out] = true
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("found %d numbers", len(found))
	}
	return out, nil
}

// number evaluates an expression of literals, constants of the package and
// units of time. If the expression contains anything else, the kind of the
// result is constant.Unknown.
func (n *numbers) number(e ast.Expr, depth int) constant.Value {
	unknown := constant.MakeUnknown()
	if depth > 8 {
		return unknown
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.ParenExpr:
		return n.number(e.X, depth+1)
	case *ast.Ident:
		if c, ok := n.constants[e.Name]; ok {
			return n.number(c, depth+1)
		}
	case *ast.SelectorExpr:
		unit, ok := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}[e.Sel.Name]
		if ok {
			return constant.MakeInt64(int64(unit))
		}
	case *ast.BinaryExpr:
		x, y := n.number(e.X, depth+1), n.number(e.Y, depth+1)
		if x.Kind() != constant.Int || y.Kind() != constant.Int {
			return unknown
		}
		switch e.Op {
		case token.SHL:
			by, _ := constant.Uint64Val(y)
			return constant.Shift(x, e.Op, uint(by))
		case token.ADD, token.SUB, token.MUL:
			return constant.BinaryOp(x, e.Op, y)
		}
	}
	return unknown
}
