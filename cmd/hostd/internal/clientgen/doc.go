// Package clientgen writes typed clients of entity types from what their
// modules say of them: for TypeScript, for Go, and as OpenAPI.
//
// What it writes depends on the modules alone: the same modules give the same
// bytes, whether they come from a node or from a file. It calls no entity, and
// starts no goroutine.
package clientgen
