// Package typescript embeds the sources of the SDK for TypeScript and
// JavaScript. hostd build bundles them with scripts, and new projects get a
// copy. The package contains no code that runs.
package typescript

import "embed"

// Sources are the files of the npm package.
//
//go:embed package.json README.md src
var Sources embed.FS
