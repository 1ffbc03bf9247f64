// Package signing verifies who signed a module. It defines the signed bytes and
// the signature ([FORMAT.md]) and the file with the keys that a node trusts,
// and it reports why a signature is not trusted.
//
// It does not decide what happens to modules that are not signed, and does not
// know where modules are stored. The package owns no goroutine: Trust.Run runs
// in the caller's.
//
// [FORMAT.md]: https://github.com/hostd/hostd/blob/main/host/signing/FORMAT.md
package signing
