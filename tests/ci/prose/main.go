// Command prose prints the mean and the maximum sentence length of each
// Markdown page that it is given, in words. It ignores code, tables and
// headings.
package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

var (
	end    = regexp.MustCompile(`[.?!:](\s+|$)`)
	link   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	marker = regexp.MustCompile(`^(\s*[-*]\s+|\s*[0-9]+\.\s+|\s*>\s*)`)
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: prose PAGE.md...")
		os.Exit(2)
	}
	fmt.Printf("%-60s %9s %5s %7s\n", "page", "sentences", "mean", "longest")
	for _, name := range os.Args[1:] {
		text, err := os.ReadFile(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		lengths := sentences(string(text))
		sum, longest := 0, 0
		for _, n := range lengths {
			sum, longest = sum+n, max(longest, n)
		}
		fmt.Printf("%-60s %9d %5.1f %7d\n", name, len(lengths), float64(sum)/float64(max(1, len(lengths))), longest)
	}
}

// sentences returns the length of each sentence in words. The end of a
// paragraph or list item also ends a sentence.
func sentences(text string) []int {
	var out []int
	paragraph := ""
	flush := func() {
		for _, s := range end.Split(paragraph, -1) {
			if n := len(strings.Fields(s)); n > 0 {
				out = append(out, n)
			}
		}
		paragraph = ""
	}
	fenced := false
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
			flush()
		case fenced, strings.HasPrefix(line, "    "), strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "<!--"):
			flush()
		case trimmed == "":
			flush()
		default:
			if marker.MatchString(line) {
				flush()
			}
			paragraph += " " + link.ReplaceAllString(marker.ReplaceAllString(trimmed, ""), "$1")
		}
	}
	flush()
	return out
}
