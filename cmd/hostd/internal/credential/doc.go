// Package credential has the commands for the caller's credentials: tokens, and
// the contexts that name their files. It starts no goroutine.
package credential
