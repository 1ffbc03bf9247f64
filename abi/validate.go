package abi

import (
	"strconv"
	"unicode/utf8"
)

// NameError reports why a name is invalid. Its text does not repeat the name,
// so that it can be shown to anyone.
type NameError struct {
	Noun   string // the kind of name: "entity type", "entity id", "event type", ...
	Reason string
}

func (e *NameError) Error() string { return e.Noun + ": " + e.Reason }

// ValidateEntityType checks the name of an entity type: 1 to MaxEntityTypeBytes
// bytes of lower-case ASCII letters, digits and hyphens. It returns a
// *NameError.
func ValidateEntityType(name string) error {
	if reason := entityTypeFault(name); reason != "" {
		return &NameError{"entity type", reason}
	}
	return nil
}

// MaxTypePatterns is the maximum length of a list of type patterns in a
// manifest.
const MaxTypePatterns = 64

// ValidateTypePattern checks a type pattern: the name of an entity type, or a
// prefix followed by *; * alone matches every type. It returns a *NameError.
func ValidateTypePattern(pattern string) error {
	stem, ends := cutStar(pattern)
	if ends && stem == "" {
		return nil
	}
	if reason := entityTypeFault(stem); reason != "" {
		return &NameError{"entity type", reason}
	}
	return nil
}

// MatchesType reports whether one of the patterns matches a type. A nil list
// matches every type, and an empty list matches no type.
func MatchesType[T string | []byte](patterns []string, entityType T) bool {
	for _, p := range patterns {
		stem, ends := cutStar(p)
		if ends && len(entityType) >= len(stem) && string(entityType[:len(stem)]) == stem || string(entityType) == stem && !ends {
			return true
		}
	}
	return patterns == nil
}

func cutStar(pattern string) (stem string, ends bool) {
	if n := len(pattern); n > 0 && pattern[n-1] == '*' {
		return pattern[:n-1], true
	}
	return pattern, false
}

func entityTypeFault[T string | []byte](name T) string {
	if reason := lengthFault(len(name), MaxEntityTypeBytes); reason != "" {
		return reason
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return "only a-z, 0-9 and - are allowed"
		}
	}
	return ""
}

// ValidateEntityID checks an entity id: 1 to MaxEntityIDBytes bytes of
// printable UTF-8. It returns a *NameError.
//
// Printable is defined here by code points instead of a Unicode table, so that
// every node and every language gives the same answer forever. Rejected are
// U+0000-001F, U+007F-009F, the line and paragraph separators U+2028-2029, the
// directional overrides U+202A-202E and U+2066-2069, U+FEFF and U+FFFE-FFFF.
func ValidateEntityID(id string) error {
	if reason := textFault(id, MaxEntityIDBytes); reason != "" {
		return &NameError{"entity id", reason}
	}
	return nil
}

// ValidateName checks a command, query, event type, timer, tag or rejection
// code: 1 to MaxNameBytes bytes of the same characters as an entity id. noun is
// the Noun of the *NameError.
func ValidateName(noun, name string) error {
	if reason := textFault(name, MaxNameBytes); reason != "" {
		return &NameError{noun, reason}
	}
	return nil
}

func lengthFault(length, limit int) string {
	if length == 0 {
		return "is empty"
	}
	if length > limit {
		return strconv.Itoa(length) + " bytes, limit " + strconv.Itoa(limit)
	}
	return ""
}

// textFault returns why text is not a name of at most limit bytes, or "".
func textFault[T string | []byte](text T, limit int) string {
	if reason := lengthFault(len(text), limit); reason != "" {
		return reason
	}
	for i := 0; i < len(text); i++ {
		if c := text[i]; c < 0x20 || c >= 0x7f {
			return runeFault(text[i:])
		}
	}
	return ""
}

// runeFault is the part of textFault for text that contains bytes other than
// printable ASCII.
func runeFault[T string | []byte](text T) string {
	for i := 0; i < len(text); {
		r, size := decodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			return "is not valid UTF-8"
		}
		if !printable(r) {
			return "contains a control character"
		}
		i += size
	}
	return ""
}

func decodeRune[T string | []byte](text T) (rune, int) {
	if text[0] < utf8.RuneSelf {
		return rune(text[0]), 1
	}
	return utf8.DecodeRuneInString(string(text[:min(len(text), utf8.UTFMax)]))
}

func printable(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f:
		return false
	case r >= 0x2028 && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return false
	case r == 0xfeff, r == 0xfffe, r == 0xffff:
		return false
	}
	return true
}
