// Package schema says whether what a module calls JSON Schema 2020-12 is that,
// and whether nodes can keep to it, before the module is taken.
//
// It checks no payloads: abi/schema does. It fetches nothing, does no I/O and
// starts no goroutine.
package schema
