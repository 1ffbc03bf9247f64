// Package c embeds the C SDK, for a program that writes it next to a guest. It
// contains no code that runs.
package c

import "embed"

// Sources is the header and its README.
//
//go:embed README.md hostd.h
var Sources embed.FS
