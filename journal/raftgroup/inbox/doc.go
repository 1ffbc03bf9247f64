// Package inbox has what waits for the loop of the raft groups, within bounds,
// and lets those who are about to add to it go first.
// An Inbox is safe for concurrent use; the package starts no goroutine.
package inbox
