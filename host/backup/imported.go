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

// invalidFileError says why a file cannot be imported.
type invalidFileError struct{ Reason string }

func (e *invalidFileError) Error() string { return e.Reason }
