// Package typescript embeds the sources of the SDK for TypeScript and
// JavaScript: the build bundles them with scripts, and new projects get a copy.
// It contains no code that runs.
package typescript

import "embed"

// Sources are the files of the npm package.
//
//go:embed package.json README.md src
var Sources embed.FS
