// Package credential has the commands about who calls: tokens, and the contexts
// that name where they are kept. It starts no goroutine.
package credential
