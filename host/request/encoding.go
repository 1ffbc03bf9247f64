package request

import (
	"encoding/json"
	"unicode/utf8"
)

// Encoding says how a type's payloads are written.
type Encoding uint8

const (
	// JSON payloads are JSON text.
	JSON Encoding = iota + 1
	// Bytes payloads are whatever the module takes them for.
	Bytes
)

// ValidJSON reports whether what a module wrote is one JSON text in UTF-8.
func ValidJSON(data []byte) bool { return json.Valid(data) && utf8.Valid(data) }
