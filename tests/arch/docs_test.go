package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// pages returns the text of each Markdown file of the repository, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, p := range paths(t) {
		if !strings.HasSuffix(p, ".md") || strings.Contains(p, "/testdata/") || strings.Contains(p, "node_modules/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, p))
		if os.IsNotExist(err) {
			continue // removed and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		out[p] = string(text)
	}
	if len(out) < 10 {
		t.Fatalf("found %d pages: this is not the repository", len(out))
	}
	return out
}

// prose returns the lines of a page, except those in code blocks.
func prose(text string) []string {
	var out []string
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
			line = ""
		case fenced || strings.HasPrefix(line, "    "):
			line = ""
		}
		out = append(out, line)
	}
	return out
}

var (
	linkPattern   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	testPattern   = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*)`")
	metricPattern = regexp.MustCompile("`(hostd_[a-z_]+[a-z])")
	makePattern   = regexp.MustCompile("`make ([a-z-]+)`")
)

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(text string) []string {
	var out []string
	count := map[string]int{}
	for _, line := range prose(text) {
		heading := strings.TrimLeft(line, "#")
		if heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		var b strings.Builder
		for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				b.WriteRune(r)
			case r == ' ':
				b.WriteByte('-')
			}
		}
		name := b.String()
		if n := count[name]; n > 0 {
			out = append(out, fmt.Sprintf("%s-%d", name, n))
		} else {
			out = append(out, name)
		}
		count[name]++
	}
	return out
}

func TestLinksResolve(t *testing.T) {
	all := pages(t)
	for from, text := range all {
		for n, line := range prose(text) {
			for _, m := range linkPattern.FindAllStringSubmatch(line, -1) {
				to, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
					continue
				}
				target := from
				if to != "" {
					target = path.Join(path.Dir(from), to)
				}
				if _, err := os.Stat(filepath.Join(root, target)); err != nil {
					t.Errorf("%s:%d: %s is not there", from, n+1, m[1])
					continue
				}
				if page, ok := all[target]; ok && anchor != "" && !slices.Contains(anchors(page), anchor) {
					t.Errorf("%s:%d: %s has no heading %q", from, n+1, target, anchor)
				}
			}
		}
	}
}

// functions returns the names of all functions in test files.
func functions(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, s.path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil {
				out[d.Name.Name] = true
			}
		}
	}
	return out
}

func TestPagesNameTestsThatExist(t *testing.T) {
	known := functions(t)
	for from, text := range pages(t) {
		if from == "CHANGELOG.md" {
			continue // the page describes the past
		}
		for n, line := range prose(text) {
			for _, m := range testPattern.FindAllStringSubmatch(line, -1) {
				if !known[m[1]] {
					t.Errorf("%s:%d: there is no %s", from, n+1, m[1])
				}
			}
		}
	}
}

func TestPagesNameMetricsThatExist(t *testing.T) {
	var code strings.Builder
	for _, s := range sources(t) {
		if s.test || s.generated {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, s.path))
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	product := code.String()
	for from, text := range pages(t) {
		if from == "CHANGELOG.md" || strings.HasPrefix(from, "abi/") || strings.HasPrefix(from, "guest-sdk/") {
			continue // the name belongs to a guest's function, which has the same prefix
		}
		for n, line := range prose(text) {
			for _, m := range metricPattern.FindAllStringSubmatch(line, -1) {
				if !strings.Contains(product, m[1]) {
					t.Errorf("%s:%d: nothing in the product is named %s", from, n+1, m[1])
				}
			}
		}
	}
}

func TestPagesNameTargetsThatExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for from, text := range pages(t) {
		for n, line := range prose(text) {
			for _, m := range makePattern.FindAllStringSubmatch(line, -1) {
				if !strings.Contains(string(makefile), "\n"+m[1]+":") {
					t.Errorf("%s:%d: make has no target %s", from, n+1, m[1])
				}
			}
		}
	}
}

// sentenceEnd matches the beginning of a second sentence on a line of prose.
var sentenceEnd = regexp.MustCompile(`[a-z0-9)\x60"*][.?!] +["(\x60*\[]*[A-Z]`)

func TestMarkdownHasOneSentencePerLine(t *testing.T) {
	for name, text := range pages(t) {
		if name == "CHANGELOG.md" {
			continue
		}
		for n, line := range prose(text) {
			trimmed := strings.TrimSpace(line)
			if strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "#") || numbered.MatchString(trimmed) {
				continue // table rows and list items are checked as a whole
			}
			if at := sentenceEnd.FindString(trimmed); at != "" {
				t.Errorf("%s:%d: a second sentence begins at %q", name, n+1, at)
			}
		}
	}
}

// releaseEntry matches the link at the end of an entry of the changelog.
var releaseEntry = regexp.MustCompile(`\]\([^)]*\)`)

// The page of a release must be short enough to read: details belong to the
// pages that it links to, and to the git history.
func TestReleasePageIsShort(t *testing.T) {
	const maxLines, maxWords = 120, 25
	text := pages(t)["CHANGELOG.md"]
	_, page, ok := strings.Cut(text, "\n## ")
	if !ok {
		t.Fatal("CHANGELOG.md has no release")
	}
	page, _, _ = strings.Cut(page, "\n## ")
	lines := 0
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "|") { // tables of renamed keys may be long
			lines++
		}
		if !strings.HasPrefix(line, "- ") {
			continue
		}
		entry := line
		if at := strings.LastIndex(line, "(["); at > 0 {
			entry = line[:at]
		}
		words := strings.FieldsFunc(releaseEntry.ReplaceAllString(entry, "]"), unicode.IsSpace)
		words = slices.DeleteFunc(words, func(w string) bool { return !strings.ContainsFunc(w, unicode.IsLetter) })
		if len(words) > maxWords {
			t.Errorf("an entry has %d words, at most %d: move details to the page it links to: %s", len(words), maxWords, line)
		}
	}
	if lines > maxLines {
		t.Errorf("the newest release has %d lines, at most %d: merge entries (a rebase may have restored old ones)", lines, maxLines)
	}
}

var numbered = regexp.MustCompile(`^[0-9]+\. `)

// The tests above would prove nothing if their rules never matched.
func TestPageRulesMatch(t *testing.T) {
	if got := anchors("# A `b` c: d\n\n```\n# no\n```\n## A b c d\n"); !slices.Equal(got, []string{"a-b-c-d", "a-b-c-d-1"}) {
		t.Errorf("anchors %q", got)
	}
	if sentenceEnd.FindString("One. Two.") == "" || sentenceEnd.FindString("e.g. one, 1.5 or go.mod") != "" {
		t.Error("the ends of sentences are found wrongly")
	}
	if m := linkPattern.FindStringSubmatch("see [x](a/b.md#c)."); m == nil || m[1] != "a/b.md#c" {
		t.Errorf("links are found wrongly: %q", m)
	}
}
