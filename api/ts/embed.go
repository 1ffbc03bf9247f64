// Package ts embeds the source of the TypeScript client: the part without
// dependencies, which is copied into generated clients of an entity type. It
// runs none of it and starts no goroutine.
package ts

import _ "embed"

// Core makes calls to nodes: attempts, ids, failures and streams.
//
//go:embed src/core.ts
var Core string

// Entities sends commands and queries to entities and subscribes to events of
// the given types. It imports Core.
//
//go:embed src/entities.ts
var Entities string
