// Package modules has the commands about modules that are not about which one
// serves a type: keys, what is signed with them, and what differs. It starts no
// goroutine of its own.
package modules
