// Package clientgen generates typed clients of entity types from the manifests
// of their modules: for TypeScript, for Go, and as OpenAPI.
//
// The output depends only on the modules: the same modules generate the same
// bytes, whether they come from a node or from a file. The package calls no
// entity and starts no goroutine.
package clientgen
