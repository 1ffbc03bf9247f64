// Package signing says who has signed a module: the bytes that are signed and
// the signature ([FORMAT.md]), the file with the keys that a node trusts, and
// what is wrong with a signature that does not count.
//
// It never decides what comes of a module that nobody has signed, and knows
// nothing of where modules are kept. The package owns no goroutine: Trust.Run
// takes the caller's.
//
// [FORMAT.md]: https://github.com/hostd/hostd/blob/main/host/signing/FORMAT.md
package signing
