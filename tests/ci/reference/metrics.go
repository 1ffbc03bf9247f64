package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const metricsHead = `# Metrics

<!-- written by "make reference" from the sources -->

A node answers ` + "`GET /metrics`" + ` in the text format of Prometheus.
An entity id is never a label.
Beside these there are the metrics of Go and of the process, as Prometheus' library names them.

| metric | kind | labels | meaning |
|---|---|---|---|
`

// metric is a metric that the product exports.
type metric struct {
	name, kind, help string
	labels           []string
}

// metrics returns a table of all metrics, sorted by name.
func metrics(root string) (string, error) {
	found := map[string]metric{}
	for _, dir := range []string{"host", "journal", "sharding"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, m := range metricsOf(f) {
				found[m.name] = m
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	if len(found) == 0 {
		return "", errors.New("no metrics found")
	}
	var b strings.Builder
	b.WriteString(metricsHead)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		m := found[name]
		labels := "-"
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, m.kind, labels, cell(m.help))
	}
	return b.String(), nil
}

// metricsOf finds the metrics in a file: in literals of options, in rows of
// tables, and in arguments of calls.
func metricsOf(f *ast.File) []metric {
	var out []metric
	labels := map[ast.Node][]string{} // labels of the option literals within a call
	lists := listsOf(f)
	ast.Inspect(f, func(n ast.Node) bool {
		var parts []ast.Expr
		kind := ""
		switch n := n.(type) {
		case *ast.CallExpr:
			parts = n.Args
			if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "histogram" {
				kind = "histogram"
			}
			if len(n.Args) == 2 {
				labels[n.Args[0]] = lists.of(n.Args[1])
			}
		case *ast.CompositeLit:
			parts = n.Elts
			if t, ok := n.Type.(*ast.SelectorExpr); ok && strings.HasPrefix(t.Sel.Name, "Histogram") {
				kind = "histogram"
			}
		default:
			return true
		}
		m := metric{kind: kind, labels: labels[n]}
		for i, part := range parts {
			key := ""
			if kv, ok := part.(*ast.KeyValueExpr); ok {
				if id, ok := kv.Key.(*ast.Ident); ok {
					key = id.Name
				}
				part = kv.Value
			}
			text, ok := textOf(part)
			switch {
			case ok && m.name == "" && strings.HasPrefix(text, "hostd_") && (key == "Name" || key == "name" || key == "" && i == 0):
				m.name = text
			case ok && m.name != "" && m.help == "" && (key == "" || key == "Help"):
				m.help = text
			case key == "ConstLabels":
				m.labels = keysOf(part)
			case m.help != "" && m.labels == nil:
				m.labels = lists.of(part)
			}
		}
		if m.name == "" || m.help == "" {
			return true
		}
		switch {
		case m.kind != "":
		case strings.HasSuffix(m.name, "_total"):
			m.kind = "counter"
		default:
			m.kind = "gauge"
		}
		out = append(out, m)
		return true
	})
	return out
}

// textOf returns the value of a string literal or of a concatenation of them.
func textOf(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		left, ok := textOf(e.X)
		right, also := textOf(e.Y)
		return left + right, ok && also
	}
	return "", false
}

// lists are the variables of a file that hold string lists, by name.
type lists map[string][]string

func listsOf(f *ast.File) lists {
	out := lists{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
			for i, name := range v.Names {
				if list := stringsOf(v.Values[i]); list != nil {
					out[name.Name] = list
				}
			}
		}
		return true
	})
	return out
}

// of returns the value of a literal []string, or of a variable that holds one.
func (l lists) of(e ast.Expr) []string {
	if id, ok := e.(*ast.Ident); ok {
		return l[id.Name]
	}
	return stringsOf(e)
}

// keysOf returns the keys of a map literal.
func keysOf(e ast.Expr) (out []string) {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, elt := range lit.Elts {
		if kv, ok := elt.(*ast.KeyValueExpr); ok {
			if text, ok := textOf(kv.Key); ok {
				out = append(out, text)
			}
		}
	}
	return out
}

// stringsOf returns the value of a literal []string.
func stringsOf(e ast.Expr) []string {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	if _, ok := lit.Type.(*ast.ArrayType); !ok {
		return nil
	}
	var out []string
	for _, elt := range lit.Elts {
		text, ok := textOf(elt)
		if !ok {
			return nil
		}
		out = append(out, text)
	}
	return out
}
