// Package hostd carries the sources that guests in Go are built from, as they
// lie in the repository, for a program that writes them beside a guest. Guests
// do not import it. It does nothing, and starts no goroutine.
package hostd

import "embed"

// Sources are the SDK for Go with what it imports, by their paths from the root
// of this module, and go.mod with the release of Go that they need. Their tests
// are among them.
//
//go:embed go.mod LICENSE
//go:embed guest-sdk/go/README.md guest-sdk/go/*.go guest-sdk/go/hostdtest/*.go guest-sdk/go/internal/*/*.go
//go:embed abi/*.go abi/jsontext/*.go abi/manifest/*.go abi/schema/*.go
var Sources embed.FS
