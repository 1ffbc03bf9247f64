package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// commentColumns is how long a line may be that has nothing but a comment; a
// tab counts as one.
const commentColumns = 80

const commentsFile = "testdata/comments.txt"

// long says whether a line is a comment that is to be wrapped: directives,
// preformatted text and single words, such as links, stay as they are.
func long(line string) bool {
	if utf8.RuneCountInString(line) <= commentColumns {
		return false
	}
	text, ok := strings.CutPrefix(strings.TrimLeft(line, "\t"), "// ")
	return ok && !strings.HasPrefix(text, " ") && strings.Contains(text, " ")
}

func TestCommentsAreWrapped(t *testing.T) {
	count, where := map[string]int{}, map[string]string{}
	for _, s := range sources(t) {
		if s.generated {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, s.path))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if long(strings.TrimSuffix(line, "\n")) {
				count[s.pkg]++
				where[s.pkg] = s.path + ": " + strings.TrimSpace(line)
			}
		}
	}
	compareCounts(t, commentsFile, count, func(pkg string) string {
		return "lines of comments have at most 80 columns, a tab counted as one; the last: " + where[pkg]
	})
}

func TestRuleOfCommentsFires(t *testing.T) {
	words := strings.Repeat("word ", 20)
	for line, want := range map[string]bool{
		"\t// " + words: true, "// short": false, "//go:generate " + words: false, "//     " + words: false,
		"x := 1 // " + words: false, "// https://example.org/" + strings.Repeat("x", 80): false,
	} {
		if long(line) != want {
			t.Errorf("%q: %v, not %v", line, !want, want)
		}
	}
}
