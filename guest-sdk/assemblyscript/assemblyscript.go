// Package assemblyscript carries the sources of the SDK for AssemblyScript, for
// a program that writes them beside a guest. It has nothing that runs.
package assemblyscript

import "embed"

// Sources is the SDK: a directory that asc takes as a library, and its page.
//
//go:embed README.md assembly
var Sources embed.FS
