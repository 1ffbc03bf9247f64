// Package codec is what payloads look like to callers: the JSON of calls and of
// streams, the one text that a value has when it is a payload, and the forms that
// a type's encoding allows.
//
// It knows messages and no services, and keeps nothing between calls.
// The package starts no goroutine.
package codec
