package arch

// maxPageBytes bounds a page, so that it can be read in one sitting.
const maxPageBytes = 15 << 10

// longPages are those that are longer yet, with what they may have at most: a
// value may only be made smaller; README is shorter than others, CHANGELOG
// grows with each release, and a program writes the table of planted faults.
var longPages = map[string]int{
	"CHANGELOG.md":            1 << 20,
	"README.md":               9 << 10,
	"tests/mutants/README.md": 32 << 10,
}

// wrapped are pages that do not have a sentence a line yet. The list may only
// shrink.
var wrapped = []string{
	"CHANGELOG.md",
}
