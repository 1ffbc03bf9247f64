// Package c carries the SDK for C, for a program that writes it beside a guest.
// It has nothing that runs.
package c

import "embed"

// Sources is the header, with its page.
//
//go:embed README.md hostd.h
var Sources embed.FS
