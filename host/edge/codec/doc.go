// Package codec converts payloads between callers and modules: the JSON form of
// calls and streams, the canonical text of a JSON value that is a payload, and
// the forms that a type's encoding allows.
//
// It knows messages but no services, keeps nothing between calls, and starts no
// goroutine.
package codec
