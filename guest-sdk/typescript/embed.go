// Package typescript carries the sources of the SDK for TypeScript and
// JavaScript: they are bundled with the scripts that are built, and written
// into new projects. It has no code of its own.
package typescript

import "embed"

// Sources are the files of the npm package.
//
//go:embed package.json README.md src
var Sources embed.FS
