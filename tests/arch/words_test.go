package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// words splits a camel-case name into words in lower case.
func words(name string) []string {
	var out []string
	runes := []rune(name)
	start := 0
	add := func(end int) {
		if end > start {
			out = append(out, strings.ToLower(string(runes[start:end])))
		}
	}
	for i, r := range runes {
		switch {
		case r == '_':
			add(i)
			start = i + 1
		case i == 0 || !unicode.IsUpper(r):
		case !unicode.IsUpper(runes[i-1]), i+1 < len(runes) && unicode.IsLower(runes[i+1]):
			add(i)
			start = i
		}
	}
	add(len(runes))
	return out
}

// names reports whether an identifier contains the old word.
func (w oldWord) names(identifier string) bool {
	if slices.Contains(w.name, identifier) {
		return true
	}
	list := words(identifier)
	for i, word := range list {
		if slices.Contains(w.say, word) && (i == 0 || !slices.Contains(w.after, list[i-1])) {
			return true
		}
	}
	return false
}

// files reports whether a file name contains the old word.
func (w oldWord) files(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".go"), "_test")
	return slices.Contains(w.file, name) || len(w.say) > 0 && oldWord{say: w.say, after: w.after}.names(name)
}

// covers reports whether the old word is denied in the package.
func (w oldWord) covers(pkg string) bool {
	return slices.ContainsFunc(w.in, func(in string) bool {
		folder, below := strings.CutSuffix(in, "...")
		return in == pkg || below && strings.HasPrefix(pkg+"/", folder)
	})
}

// declared calls yield with each name that the file declares.
func declared(f *ast.File, yield func(name string)) {
	all := func(list []*ast.Ident) {
		for _, id := range list {
			yield(id.Name)
		}
	}
	assigned := func(list ...ast.Expr) {
		for _, e := range list {
			if id, ok := e.(*ast.Ident); ok {
				yield(id.Name)
			}
		}
	}
	yield(f.Name.Name)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			yield(n.Name.Name)
		case *ast.TypeSpec:
			yield(n.Name.Name)
		case *ast.ValueSpec:
			all(n.Names)
		case *ast.Field:
			all(n.Names)
		case *ast.LabeledStmt:
			yield(n.Label.Name)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				assigned(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				assigned(n.Key, n.Value)
			}
		}
		return true
	})
}

// usesOf calls found with each declared name and file name of a source that
// contains an old word.
func usesOf(s source, f *ast.File, found func(w oldWord, name string)) {
	for _, w := range oldWords {
		if !w.covers(s.pkg) {
			continue
		}
		if file := path.Base(s.path); w.files(file) {
			found(w, file)
		}
		declared(f, func(name string) {
			if w.names(name) {
				found(w, name)
			}
		})
	}
}

func TestOldWordsAreNotUsed(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated || s.pkg == "tests/arch" {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, s.path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		usesOf(s, f, func(w oldWord, name string) {
			t.Errorf("%s: %s; say instead: %s", s.path, name, w.instead)
		})
	}
}

func TestWordRulesMatch(t *testing.T) {
	for name, want := range map[string]string{
		"ShardLetters": "shard letters", "HTTPPost": "http post", "timers_of": "timers of", "x": "x", "IsNDJSON": "is ndjson", "nodeID": "node id",
	} {
		if got := strings.Join(words(name), " "); got != want {
			t.Errorf("the words of %s are %q, not %q", name, got, want)
		}
	}
	w := oldWord{say: []string{"letter"}, name: []string{"Held"}, file: []string{"care"}, after: []string{"dead"}, in: []string{"host", "journal/..."}}
	for name, want := range map[string]bool{"letter": true, "AddLetter": true, "deadLetter": false, "DeadLetterBox": false, "newsletter": false, "Held": true, "held": false, "Care": false} {
		if w.names(name) != want {
			t.Errorf("%s: %v, not %v", name, !want, want)
		}
	}
	for name, want := range map[string]bool{"care.go": true, "care_test.go": true, "letter.go": true, "dead_letter.go": false, "careful.go": false} {
		if w.files(name) != want {
			t.Errorf("file %s: %v, not %v", name, !want, want)
		}
	}
	for pkg, want := range map[string]bool{"host": true, "host/edge": false, "journal": true, "journal/wal": true, "journals": false} {
		if w.covers(pkg) != want {
			t.Errorf("package %s: %v, not %v", pkg, !want, want)
		}
	}
	f, err := parser.ParseFile(token.NewFileSet(), "letter.go", "package host\n\nfunc letters(n int) { deadLetter := n; _ = deadLetter }\n", parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	usesOf(source{pkg: "host", path: "host/letter.go"}, f, func(_ oldWord, name string) { found = append(found, name) })
	if !slices.Equal(found, []string{"letter.go", "letters"}) {
		t.Errorf("a source with an old word: found %q", found)
	}
}
