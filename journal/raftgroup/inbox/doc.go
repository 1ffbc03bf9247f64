// Package inbox is the bounded queue in front of the loop of the raft groups.
// It also lets goroutines that are about to add work run before the loop drains
// it. An Inbox is safe for concurrent use; the package starts no goroutine.
package inbox
