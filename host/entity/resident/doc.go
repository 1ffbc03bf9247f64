// Package resident tracks the entities of an executor that are in memory. It
// finds them by name, selects those to evict, and counts which are used most.
//
// It never loads or evicts an entity itself. Its types belong to the executor's
// goroutine.
package resident
