package arch

// Bounds of what a reader has to hold in mind at once. Test files and
// generated ones do not count.
const (
	maxPackageFiles = 30
	maxPackageLines = 4500
	maxMethods      = 60
	maxFields       = 25
)

// lists are the endings of types that are lists of values to be read one by
// one, not something to be held in mind at once: their fields do not count.
var lists = []string{"Options", "Config", "Limits", "Stats"}

// A size is what a package or a type may have beyond the bounds above.
type size struct {
	files, lines    int // of a package
	methods, fields int // of a type
}

// oversized are the packages and types (package.Type) that are beyond the
// bounds, each with what it may have at most. A value here may only be made
// smaller, and an entry that is within the bounds has to go.
var oversized = map[string]size{}
