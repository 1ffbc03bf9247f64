// Package history reads what an entity was, for a guest to make its state of:
// the newest snapshot of use, and the records after it, in chunks.
//
// It stores nothing and starts no goroutine: loaders call it, and a Lane hands
// its chunks to guests.
package history
