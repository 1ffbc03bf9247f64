// Package rust embeds the sources of the Rust SDK, for a program that writes
// them next to a guest. It contains no code that runs.
package rust

import "embed"

// Sources is the crate, from its root.
//
//go:embed README.md Cargo.toml src
var Sources embed.FS
