// Package licenses embeds the licenses and notices of everything that is linked
// into the program, as deploy/notices generates them. It reads no file at run
// time and starts no goroutine.
package licenses

import _ "embed"

//go:embed notices.txt
var text string

// Text returns all licenses and notices.
func Text() string { return text }
