// Package modules has the commands about modules that change nothing of which
// one serves a type: keys, what is signed with them, what differs, and what has
// served. It starts no goroutine of its own.
package modules
