package clientgen

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// names are the identifiers in use.
type names map[string]bool

// take returns the first free name of name, name2, name3 and so on, and marks
// it as used.
func (n names) take(name string) string {
	free := name
	for i := 2; n[free]; i++ {
		free = name + strconv.Itoa(i)
	}
	n[free] = true
	return free
}

// pascal joins words to an identifier of the form FirstSecond, whatever
// separates them. Words without an ASCII letter or digit become X.
func pascal(words ...string) string {
	var b strings.Builder
	for _, w := range words {
		up := true
		for _, r := range w {
			switch {
			case r >= utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r):
				up = true
			case up:
				b.WriteRune(unicode.ToUpper(r))
				up = false
			default:
				b.WriteRune(r)
			}
		}
	}
	name := b.String()
	if name == "" || unicode.IsDigit(rune(name[0])) {
		name = "X" + name
	}
	return name
}

// line returns a text as one line that cannot end a comment.
func line(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	return strings.ReplaceAll(text, "*/", "* /")
}
