package arch

import (
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// countDenied counts denied phrases and terms in a text of prose.
func countDenied(text string) int {
	text = strings.Join(strings.Fields(text), " ") // a phrase may span lines
	return len(deniedPhrases.FindAllString(text, -1)) + len(deniedTerms.FindAllString(text, -1))
}

// countDeniedInText counts denied phrases in an error, a log message, a help
// text or a text of the console.
func countDeniedInText(text string) int {
	return countDenied(text) + len(deniedInTexts.FindAllString(strings.Join(strings.Fields(text), " "), -1))
}

// scriptText matches the texts of a TypeScript source: string literals, and
// text between tags.
var scriptText = regexp.MustCompile(`"[^"\n]*"|` + "`[^`]*`" + `|>[^<>{}]*[<{]`)

// deniedInScript counts denied phrases in the texts of a TypeScript source. It
// skips comments.
func deniedInScript(src string) (n int) {
	for line := range strings.Lines(src) {
		if line, _, _ = strings.Cut(line, "// "); strings.HasPrefix(strings.TrimSpace(line), "/*") || strings.HasPrefix(strings.TrimSpace(line), "* ") {
			continue
		}
		for _, text := range scriptText.FindAllString(line, -1) {
			if strings.Contains(strings.TrimSpace(text), " ") {
				n += countDeniedInText(text)
			}
		}
	}
	return n
}

// inlineCode matches quotations of code in a page, whose wording the prose
// cannot choose.
var inlineCode = regexp.MustCompile("`[^`]*`" + `|\]\([^)]*\)`)

// deniedInPage counts denied phrases in the prose of a Markdown page. It skips
// code and, if quotes is set, tables, whose rows quote old words.
func deniedInPage(text string, quotes bool) int {
	var kept []string
	for _, line := range prose(text) {
		if quotes && strings.HasPrefix(line, "|") {
			continue
		}
		kept = append(kept, inlineCode.ReplaceAllString(line, "_"))
	}
	return countDenied(strings.Join(kept, "\n"))
}

// deniedInSource counts denied phrases in the comments of a Go file. If inText
// is not nil, it also counts them, using inText, in the string literals, which
// are help texts, errors and log messages.
func deniedInSource(src []byte, inText func(string) int) int {
	var s scanner.Scanner
	fset := token.NewFileSet()
	s.Init(fset.AddFile("", fset.Base(), len(src)), src, nil, scanner.ScanComments)
	n := 0
	var comment []string // consecutive comments, because sentences span lines
	flush := func() {
		n += countDenied(strings.Join(comment, "\n"))
		comment = comment[:0]
	}
	for {
		_, tok, lit := s.Scan()
		if tok == token.COMMENT {
			comment = append(comment, strings.Trim(lit, "/* \n"))
			continue
		}
		flush()
		switch tok {
		case token.EOF:
			return n
		case token.STRING:
			if text, err := strconv.Unquote(lit); err == nil && inText != nil && strings.Contains(strings.TrimSpace(text), " ") {
				n += inText(text)
			}
		}
	}
}

var write = flag.Bool("write", false, "lower the budgets of prose in testdata/prose.txt to today's counts")

const proseFile = "testdata/prose.txt"

// proseCounts returns the number of denied phrases of each page and package
// that has any.
func proseCounts(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for name, text := range pages(t) {
		quotes := name == "CONTRIBUTING.md" || name == "docs/GLOSSARY.md"
		counts[name] += deniedInPage(text, quotes)
	}
	for _, s := range sources(t) {
		if s.generated || s.pkg == "tests/arch" {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, s.path))
		if err != nil {
			t.Fatal(err)
		}
		inText := countDeniedInText
		switch {
		case s.test:
			inText = nil
		case strings.HasPrefix(s.pkg, "tests/"): // only developers read the texts of tests
			inText = countDenied
		}
		counts[s.pkg] += deniedInSource(src, inText)
	}
	const console = "host/console/web/src"
	scripts, err := filepath.Glob(filepath.Join(root, console, "*.ts*"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%s has %d scripts: %v", console, len(scripts), err)
	}
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		counts[console] += deniedInScript(string(text))
	}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	return counts
}

// readBudgets reads lines of a path and a number.
func readBudgets(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(proseFile)
	if err != nil {
		t.Fatal(err)
	}
	budgets := map[string]int{}
	for line := range strings.Lines(string(text)) {
		name, number, ok := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(number)
		if !ok || err != nil {
			t.Fatalf("%s: cannot read the line %q", proseFile, line)
		}
		budgets[name] = n
	}
	return budgets
}

// TestProseBudget limits denied phrases to a budget for each page and package.
// A budget may fall and never rise, so that old text can be rewritten piece by
// piece while new text must follow the rules. A path without a line has a
// budget of 0, and lines of removed paths are ignored.
func TestProseBudget(t *testing.T) {
	counts, budgets := proseCounts(t), readBudgets(t)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[name]; n > budgets[name] {
			t.Errorf("%s has %d phrases that CONTRIBUTING.md denies, its budget is %d: see prose.go for them and for what to write; if the text moved, move its budget in %s too",
				name, n, budgets[name], proseFile)
		}
	}
	if !*write || t.Failed() {
		return
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintln(&out, name, counts[name])
	}
	if err := os.WriteFile(proseFile, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestProseRulesMatch(t *testing.T) {
	for text, want := range map[string]int{
		"The caller is told. Then it begins anew.":      2,
		"The node goes\non.":                            1,
		"What is stored there is read.":                 1,
		"The lane hands a parked entity back.":          2,
		"If it fails, retry it. What follows is clear.": 0,
		"The planet is planed.":                         0,
	} {
		if got := countDenied(text); got != want {
			t.Errorf("%q: %d, not %d", text, got, want)
		}
	}
	page := "# Anew\n\n```\nanew\n```\n`parked` [x](anew.md) but for\n| lane | anew |\n"
	if with, without := deniedInPage(page, false), deniedInPage(page, true); with != 4 || without != 2 {
		t.Errorf("a page has %d and %d, not 4 and 2", with, without)
	}
	for text, want := range map[string]int{
		"a type is not served any more":            1,
		"the loop stands still again and again":    2,
		"nobody is told who calls":                 3,
		"the message fits, and the node continues": 0,
	} {
		if got := countDeniedInText(text); got != want {
			t.Errorf("%q: %d, not %d", text, got, want)
		}
	}
	script := "// It goes on.\nconst a = \"it goes on\"; // goes on\nreturn <p class=\"x\">Nobody is there any more.</p>;\n"
	if got := deniedInScript(script); got != 3 {
		t.Errorf("a script has %d, not 3", got)
	}
	source := []byte("package p\n\n// F goes\n// on.\nfunc F() string { return \"it is told to begin anew\" } // anew\n")
	if with, without := deniedInSource(source, countDenied), deniedInSource(source, nil); with != 4 || without != 2 {
		t.Errorf("a source has %d and %d, not 4 and 2", with, without)
	}
}
