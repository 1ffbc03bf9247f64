// Package rust carries the sources of the SDK for Rust, for a program that
// writes them beside a guest. It has nothing that runs.
package rust

import "embed"

// Sources is the crate, from its root.
//
//go:embed README.md Cargo.toml src
var Sources embed.FS
