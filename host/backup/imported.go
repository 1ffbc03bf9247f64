package backup

// Imported describes an imported file.
type Imported struct {
	Entities, Shards, Modules uint64
	Digest                    string // SHA-256, in hex
	// PausedRollouts are the entity types that a second module serves in part.
	PausedRollouts []string
	// Omitted lists the settings, roles and role bindings that were not imported.
	Omitted []string
}

// InvalidFileError says why a file cannot be imported.
type InvalidFileError struct{ Reason string }

func (e *InvalidFileError) Error() string { return e.Reason }
