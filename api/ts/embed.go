// Package ts is the client for TypeScript as text: the part that has no
// dependency, which clients that are generated for an entity type carry with
// them. It runs none of it, and starts no goroutine.
package ts

import _ "embed"

// Core calls nodes: attempts, ids, failures and streams.
//
//go:embed src/core.ts
var Core string

// Entities sends commands and queries to entities, and subscribes to their
// events, by the types that it is given. It imports Core.
//
//go:embed src/entities.ts
var Entities string
