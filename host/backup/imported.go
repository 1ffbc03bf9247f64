package backup

// Imported is what a file held.
type Imported struct {
	Entities, Shards, Modules uint64
	Digest                    string // hex
	// InPart are the entity types that a second module serves in part.
	InPart []string
	// LeftOut says which roles, and whose, were not brought.
	LeftOut []string
}

// InvalidFileError says why a file cannot be imported.
type InvalidFileError struct{ Reason string }

func (e *InvalidFileError) Error() string { return e.Reason }
