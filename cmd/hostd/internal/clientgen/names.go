package clientgen

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// names are those that something is called by, each once.
type names map[string]bool

// take returns the first of name, name2, name3 and so on that is free, and
// takes it.
func (n names) take(name string) string {
	free := name
	for i := 2; n[free]; i++ {
		free = name + strconv.Itoa(i)
	}
	n[free] = true
	return free
}

// pascal makes an identifier of words, whatever divides them: FirstSecond. Of
// what has no letter and no digit of ASCII it makes X.
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

// line is a text for people in one line, which ends no comment.
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
