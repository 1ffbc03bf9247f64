// Package datadir is a node's data directory as such: what lies in it by which
// name, whose it is (the identity, with the starts that it has vouched for), the
// lock that keeps a second process out, and the mark below which the disk is too
// full to write. It knows nothing of what the journal and the modules hold.
// The package starts no goroutine.
package datadir
