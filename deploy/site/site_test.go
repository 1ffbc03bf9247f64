package main

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func built(t *testing.T) *site {
	t.Helper()
	s, err := build(os.DirFS("../.."), "9.8.7")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var references = regexp.MustCompile(`(?:href|src)="([^"]*)"`)

// TestLinksOfSiteResolve checks every link in the HTML against the files and
// anchors of the site, including links in the menu and in HTML embedded in
// Markdown.
func TestLinksOfSiteResolve(t *testing.T) {
	s := built(t)
	pages := 0
	for name, content := range s.files {
		if path.Ext(name) != ".html" {
			continue
		}
		pages++
		for _, m := range references.FindAllStringSubmatch(string(content), -1) {
			to := strings.ReplaceAll(m[1], "&amp;", "&")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(to, "#")
			target := path.Join(path.Dir(name), file)
			if file == "" {
				target = name
			}
			there, ok := s.files[target]
			if !ok {
				t.Errorf("%s: %s is not on the site", name, to)
			} else if anchor != "" && !strings.Contains(string(there), `id="`+anchor+`"`) {
				t.Errorf("%s: %s has no anchor %q", name, target, anchor)
			}
		}
	}
	if pages < 100 {
		t.Errorf("the site has %d pages", pages)
	}
	if page := string(s.files["docs/operating/install.html"]); !strings.Contains(page, "hostd 9.8.7") || !strings.Contains(page, `aria-current="page">Install<`) || !strings.Contains(page, "<table>") && !strings.Contains(page, "<pre>") {
		t.Error("the page Install has no release, no menu or no contents")
	}
}

func TestBrokenLinksFailTheBuild(t *testing.T) {
	files := fstest.MapFS{
		"README.md":      {Data: []byte("# Home\n\n[docs](docs/README.md) [code](main.go)\n")},
		"main.go":        {Data: []byte("package main\n")},
		"docs/README.md": {Data: []byte("# Docs\n\n## Use\n\n[page](page.md#two-words)\n")},
		"docs/page.md":   {Data: []byte("# Page\n\n## Two words!\n\nText.\n")},
	}
	s, err := build(files, "")
	if err != nil {
		t.Fatal(err)
	}
	if page := string(s.files["index.html"]); !strings.Contains(page, `href="docs/index.html"`) || !strings.Contains(page, `href="`+sources+`main.go"`) {
		t.Error(page)
	}
	for broken, says := range map[string]string{"[x](page.md#three)": `docs/page.md has no heading "three"`, "[x](absent.md)": "absent.md is not there", "![x](absent.png)": "absent.png is not there"} {
		files["docs/README.md"] = &fstest.MapFile{Data: []byte("# Docs\n\n## Use\n\n" + broken + "\n")}
		if _, err := build(files, ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", broken, err)
		}
	}
}

func TestSiteIsReproducible(t *testing.T) {
	one, two := built(t), built(t)
	for _, name := range slices.Sorted(maps.Keys(one.files)) {
		if string(one.files[name]) != string(two.files[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

// TestLLMsListNamesPages checks that the list contains every page, either in
// the menu or once as Optional, and that its links point to Markdown.
func TestLLMsListNamesPages(t *testing.T) {
	s := built(t)
	text := string(s.files["llms.txt"])
	if !strings.HasPrefix(text, "# hostd\n\n> ") {
		t.Errorf("llms.txt begins with %q", text[:40])
	}
	for name := range s.pages {
		if !strings.Contains(text, "]("+name+"): ") || len(s.files[name]) == 0 {
			t.Errorf("%s is not listed", name)
		}
	}
}

// TestSearchFindsPages checks that the script of the pages finds pages in their
// index.
func TestSearchFindsPages(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs node")
	}
	dir := t.TempDir()
	if err := built(t).write(dir); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"finalize upgrade":          "docs/operating/cluster.html#upgrade-a-cluster",
		"hostd entity deadletters":  "docs/reference/commands.html#hostd-entity-deadletters",
		"CURSOR_HISTORY_LOST":       "docs/reference/errors.html#cursor_history_lost",
		"no such words on any page": "",
	} {
		script := `const nothing = { addEventListener() {}, getElementById: () => nothing }; globalThis.document = nothing;
const { readFileSync } = require("fs"); let searchIndex;
eval(readFileSync("search.js", "utf8") + readFileSync("search-index.js", "utf8") + ";console.log(search(searchIndex, process.argv[1]).map((p) => p.u).join(' '))")`
		cmd := exec.Command(node, "-e", script, query)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		found := strings.Fields(string(out))
		if want == "" && len(found) > 0 || want != "" && !slices.Contains(found, want) {
			t.Errorf("%s: found %v", query, found)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "docs/images/console-cluster.png")); err != nil {
		t.Error(err)
	}
}
