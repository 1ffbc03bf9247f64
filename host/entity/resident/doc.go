// Package resident knows which entities of an executor are in memory: it finds them
// by name, says which of them the executor can do without best, and which are asked
// for most.
//
// It never loads an entity or lets one go. Its types belong to the executor's
// goroutine.
package resident
