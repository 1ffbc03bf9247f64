// Package store keeps the journal in Badger: its keys, its values, and the
// versions by which a crash is survived. It never decides whether a record is
// accepted, and it never syncs in the commit path: what is durable is told by
// Watermark, and everything after that is written again from the log.
//
// The background goroutines are Badger's; Open starts them and Close joins
// them. Nothing outside this package imports Badger. FORMAT.md beside this
// file has the bytes.
package store
