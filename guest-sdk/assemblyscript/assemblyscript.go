// Package assemblyscript embeds the sources of the AssemblyScript SDK, for a
// program that writes them next to a guest. It contains no code that runs.
package assemblyscript

import "embed"

// Sources is the SDK: a directory that asc accepts as a library, and its
// README.
//
//go:embed README.md assembly
var Sources embed.FS
