package schema

import (
	"iter"
	"strings"
	"unicode/utf8"
)

// nearestMost is the longest name that others are compared with.
const nearestMost = 64

// Nearest finds the name that somebody who wrote name probably meant: one that
// is few letters away, and the first in order of those that are as near. found
// is false when none is near.
func Nearest(name string, names iter.Seq[string]) (nearest string, found bool) {
	if name == "" || len(name) > nearestMost || !utf8.ValidString(name) {
		return "", false
	}
	asked := []rune(strings.ToLower(name))
	best := max(1, len(asked)/3) + 1
	for other := range names {
		if len(other) > nearestMost || other == name {
			continue
		}
		if d := distance(asked, []rune(strings.ToLower(other))); d < len(asked) && (d < best || d == best && found && other < nearest) {
			nearest, best, found = other, d, true
		}
	}
	return nearest, found
}

// distance counts the letters to put in, leave out, change or swap with the
// next to make one name of the other.
func distance(a, b []rune) int {
	var rows [3][nearestMost + 1]int
	before, last, now := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i, x := range a {
		now[0] = i + 1
		for j, y := range b {
			cost := 1
			if x == y {
				cost = 0
			}
			now[j+1] = min(last[j]+cost, last[j+1]+1, now[j]+1)
			if i > 0 && j > 0 && x == b[j-1] && a[i-1] == y {
				now[j+1] = min(now[j+1], before[j-1]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
