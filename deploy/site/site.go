package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// sources is the base URL for links to files that are not on the site.
const sources = "https://github.com/hostd/hostd/blob/main/"

//go:embed static
var static embed.FS

var layout = template.Must(template.ParseFS(static, "static/page.html"))

// site is the files of a site, by name.
type site struct {
	files map[string][]byte
	pages map[string]*page // by the name of the Markdown file
	root  fs.FS
}

// skipped are directories without pages for readers.
var skipped = []string{"node_modules", "testdata", "dist", "site", "bin"}

// build builds the site of a repository.
func build(root fs.FS, version string) (*site, error) {
	s := &site{files: map[string][]byte{}, pages: map[string]*page{}, root: root}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains(skipped, d.Name())):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".md":
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		s.pages[name] = parse(name, text)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s.pages[indexPage] == nil || s.pages["README.md"] == nil {
		return nil, errors.New("the repository has no README.md and " + indexPage)
	}
	names := slices.Sorted(maps.Keys(s.pages))
	for _, name := range names {
		err = errors.Join(err, s.rewrite(s.pages[name]))
	}
	if err != nil {
		return nil, err
	}
	menu := s.menu()
	for _, name := range names {
		if err := s.render(s.pages[name], menu, version); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := s.search(names); err != nil {
		return nil, err
	}
	s.llms(menu, names)
	for _, name := range []string{"style.css", "search.js"} {
		if s.files[name], err = static.ReadFile("static/" + name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// indexPage is the page whose sections and links are the menu.
const indexPage = "docs/README.md"

// htmlName returns the name of a page on the site.
func htmlName(markdown string) string {
	if dir, base := path.Split(markdown); base == "README.md" {
		return dir + "index.html"
	}
	return strings.TrimSuffix(markdown, ".md") + ".html"
}

// rewrite changes the links of a page to point to pages of the site or, for
// other files, to the sources. It copies images.
func (s *site) rewrite(p *page) error {
	var failed error
	for n := range p.links() {
		destination := n.Destination
		to := string(*destination)
		switch {
		case strings.Contains(to, "://"), strings.HasPrefix(to, "mailto:"):
			continue
		case strings.HasPrefix(to, "#"):
			to = path.Base(p.name) + to
		}
		file, anchor, _ := strings.Cut(to, "#")
		target := path.Join(path.Dir(p.name), file)
		if other := s.pages[target]; other != nil {
			if anchor != "" && !slices.Contains(other.anchors, anchor) {
				failed = errors.Join(failed, fmt.Errorf("%s: %s has no heading %q", p.name, target, anchor))
			}
			*destination = []byte(relative(p.name, htmlName(target)) + hash(anchor))
			continue
		}
		info, err := fs.Stat(s.root, target)
		switch {
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("%s: %s is not there", p.name, to))
		case n.image:
			content, err := fs.ReadFile(s.root, target)
			failed = errors.Join(failed, err)
			s.files[target] = content
		case info.IsDir() && s.pages[path.Join(target, "README.md")] != nil:
			*destination = []byte(relative(p.name, path.Join(target, "index.html")))
		default:
			*destination = []byte(sources + target + hash(anchor))
		}
	}
	return failed
}

func hash(anchor string) string {
	if anchor == "" {
		return ""
	}
	return "#" + anchor
}

// relative returns the path to a file from the directory of a page.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(from, "/")) + to
}

// section is a heading of the menu with its links.
type section struct {
	Title string
	Items []item
}

type item struct{ Title, Page string } // Page is the name of the Markdown file

// menu returns the sections of the index page, with the pages to which they
// link.
func (s *site) menu() []section {
	index := s.pages[indexPage]
	var out []section
	seen := map[string]bool{}
	_ = ast.Walk(index.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				out = append(out, section{Title: text(n, index.source)})
			}
		case *ast.Link:
			name := index.targets[n]
			if s.pages[name] != nil && len(out) > 0 && !seen[out[len(out)-1].Title+name] {
				seen[out[len(out)-1].Title+name] = true
				last := &out[len(out)-1]
				last.Items = append(last.Items, item{s.pages[name].title, name})
			}
		}
		return ast.WalkContinue, nil
	})
	return out
}

// render writes a page as HTML and as Markdown.
func (s *site) render(p *page, menu []section, version string) error {
	type entry struct {
		Title, URL string
		Current    bool
	}
	type group struct {
		Title string
		Items []entry
	}
	var groups []group
	for _, m := range menu {
		g := group{Title: m.Title}
		for _, i := range m.Items {
			g.Items = append(g.Items, entry{i.Title, relative(p.name, htmlName(i.Page)), i.Page == p.name})
		}
		groups = append(groups, g)
	}
	var body bytes.Buffer
	if err := markdown.Renderer().Render(&body, p.source, p.tree); err != nil {
		return err
	}
	var out bytes.Buffer
	err := layout.Execute(&out, map[string]any{
		"Title": p.title, "Root": strings.Repeat("../", strings.Count(p.name, "/")), "Menu": groups, "Version": version,
		"Body": template.HTML(body.String()), "Markdown": path.Base(p.name), "Source": sources + p.name,
	})
	s.files[htmlName(p.name)], s.files[p.name] = out.Bytes(), p.source
	return err
}

// search writes the sections of all pages for search.js.
func (s *site) search(names []string) error {
	type found struct {
		URL   string `json:"u"`
		Title string `json:"t"`
		Text  string `json:"x"`
	}
	var all []found
	for _, name := range names {
		for _, part := range s.pages[name].parts {
			title := s.pages[name].title
			if part.heading != title {
				title += " - " + part.heading
			}
			all = append(all, found{htmlName(name) + hash(part.anchor), title, part.text})
		}
	}
	var out bytes.Buffer
	out.WriteString("searchIndex = ")
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(all)
	s.files["search-index.js"] = out.Bytes()
	return err
}

// llms writes llms.txt, the list of pages in the form of llmstxt.org.
func (s *site) llms(menu []section, names []string) {
	var b strings.Builder
	home := s.pages["README.md"]
	fmt.Fprintf(&b, "# %s\n\n> %s\n", home.title, home.summary)
	listed := map[string]bool{}
	list := func(title string, pages []string) {
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		for _, name := range pages {
			listed[name] = true
			p := s.pages[name]
			fmt.Fprintf(&b, "- [%s](%s): %s\n", p.title, name, p.summary)
		}
	}
	for _, m := range menu {
		var pages []string
		for _, i := range m.Items {
			pages = append(pages, i.Page)
		}
		list(m.Title, pages)
	}
	list("Optional", slices.DeleteFunc(slices.Clone(names), func(n string) bool { return listed[n] }))
	s.files["llms.txt"] = []byte(b.String())
}
