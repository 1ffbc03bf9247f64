// Package entityfile writes and reads the file that holds one entity's history
// and the module that serves it (FORMAT.md). It reads what it does not trust: a
// file is bounded, and checked to its end. It starts no goroutine.
package entityfile
