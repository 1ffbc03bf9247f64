package main

import (
	"fmt"
	"iter"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	gmtext "github.com/yuin/goldmark/text"
)

// HTML in the pages, such as comments and the README's picture, is kept,
// because the pages are the repository's own.
var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()), goldmark.WithRendererOptions(html.WithUnsafe()))

// page is a Markdown file.
type page struct {
	name           string // path with slashes, relative to the root of the repository
	source         []byte
	tree           ast.Node
	title, summary string
	anchors        []string
	parts          []part
	targets        map[*ast.Link]string // file to which each link points, before links are rewritten
}

// part is the text below a heading, for the search.
type part struct{ heading, anchor, text string }

func parse(name string, source []byte) *page {
	p := &page{name: name, source: source, title: name, targets: map[*ast.Link]string{}}
	context := parser.NewContext(parser.WithIDs(&ids{count: map[string]int{}}))
	p.tree = markdown.Parser().Parse(gmtext.NewReader(source), parser.WithContext(context))
	var inside strings.Builder
	end := func() {
		if len(p.parts) > 0 {
			p.parts[len(p.parts)-1].text = strings.Join(strings.Fields(inside.String()), " ")
		}
		inside.Reset()
	}
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			end()
			heading := text(n, source)
			id, _ := n.AttributeString("id")
			anchor := fmt.Sprintf("%s", id)
			p.anchors = append(p.anchors, anchor)
			if n.Level == 1 {
				p.title = heading
			}
			p.parts = append(p.parts, part{heading: heading, anchor: anchor})
			return ast.WalkSkipChildren, nil
		case *ast.Paragraph:
			if p.summary == "" && len(p.parts) > 0 {
				p.summary, _, _ = strings.Cut(text(n, source), "\n")
			}
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				inside.Write(line.Value(source))
			}
			inside.WriteByte(' ')
		case *ast.Text:
			inside.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				inside.WriteByte(' ')
			}
		case *extast.TableCell, *ast.ListItem, *ast.TextBlock:
			inside.WriteByte(' ')
		case *ast.Link:
			file, _, _ := strings.Cut(string(n.Destination), "#")
			p.targets[n] = path.Join(path.Dir(name), file)
		}
		return ast.WalkContinue, nil
	})
	end()
	return p
}

// text returns the text of a node without its markup.
func text(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
			if t.SoftLineBreak() {
				b.WriteByte('\n')
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// link is the destination of a link or of an image.
type link struct {
	Destination *[]byte
	image       bool
}

// links returns the links and images of a page.
func (p *page) links() iter.Seq[link] {
	return func(yield func(link) bool) {
		_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			var l link
			switch n := n.(type) {
			case *ast.Link:
				l = link{&n.Destination, false}
			case *ast.Image:
				l = link{&n.Destination, true}
			}
			if entering && l.Destination != nil && !yield(l) {
				return ast.WalkStop, nil
			}
			return ast.WalkContinue, nil
		})
	}
}

// ids generates the anchors of headings like GitHub, so that links work on
// GitHub and on the site.
type ids struct{ count map[string]int }

// Generate implements parser.IDs.
func (i *ids) Generate(value []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(string(value))) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	name := b.String()
	n := i.count[name]
	i.count[name]++
	if n > 0 {
		name = fmt.Sprintf("%s-%d", name, n)
	}
	return []byte(name)
}

// Put implements parser.IDs.
func (i *ids) Put(value []byte) { i.count[string(value)]++ }
