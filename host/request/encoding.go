package request

import (
	"encoding/json"
	"unicode/utf8"
)

// Encoding says how a type's payloads are encoded.
type Encoding uint8

const (
	// JSON payloads are JSON text.
	JSON Encoding = iota + 1
	// Bytes payloads are opaque bytes that only the module interprets.
	Bytes
)

// ValidJSON reports whether data, which a module wrote, is one JSON text in
// UTF-8.
func ValidJSON(data []byte) bool { return json.Valid(data) && utf8.Valid(data) }
