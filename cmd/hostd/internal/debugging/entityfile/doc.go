// Package entityfile writes and reads files that hold one entity's history and
// the module that serves it (FORMAT.md). It does not trust the files that it
// reads: it limits their size and checks them to the end. It starts no
// goroutine.
package entityfile
