package schema

import (
	"iter"
	"math"
	"strings"
	"unicode/utf8"
)

// nearestMost limits the length of a name for which similar names are searched.
const nearestMost = 64

// comparedMost limits the number of names whose edit distance is computed.
const comparedMost = 64

// Nearest returns the known name that the caller probably meant: the name with
// the smallest edit distance, if that distance is small, and the first in order
// among equally near names. It returns false if there is none. It compares at
// most 64 names, and only names of similar length.
func Nearest(name string, names iter.Seq[string]) (string, bool) {
	found, _ := nearest(name, names, math.MaxInt)
	return found, found != ""
}

// cellsPerStep is how many pairs of letters are compared per step.
const cellsPerStep = 4

// nearest is like Nearest, but takes at most most steps. It returns the name,
// or an empty name if no name is near, and the number of steps taken.
func nearest(name string, names iter.Seq[string], most int) (nearest string, steps int) {
	if name == "" || len(name) > nearestMost || !utf8.ValidString(name) {
		return "", 0
	}
	asked := []rune(strings.ToLower(name))
	best, compared := max(1, len(asked)/3)+1, 0
	for other := range names {
		if steps++; len(other) == 0 || len(other) > nearestMost || other == name {
			continue
		}
		letters := utf8.RuneCountInString(other)
		if max(letters, len(asked))-min(letters, len(asked)) > best {
			continue
		}
		compared++
		if steps += letters * len(asked) / cellsPerStep; compared > comparedMost || steps > most {
			break
		}
		if d := distance(asked, []rune(strings.ToLower(other))); d < len(asked) && (d < best || d == best && nearest != "" && other < nearest) {
			nearest, best = other, d
		}
	}
	return nearest, min(steps, most)
}

// distance returns the edit distance of two names: the number of letters to
// insert, delete, replace or swap with the next letter.
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
