// Package store keeps the journal in Badger: its keys, its values, and the
// versions that make crash recovery possible. It never decides whether a record
// is accepted, and never syncs in the commit path. Watermark shows which
// versions are durable; after a crash, all later versions are written again
// from the log.
//
// The background goroutines are Badger's; Open starts them and Close waits for
// them. No other package imports Badger. FORMAT.md describes the bytes.
package store
