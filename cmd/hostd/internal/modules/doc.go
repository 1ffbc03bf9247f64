// Package modules has the commands about modules that are not about which one
// serves a type: keys, and what is signed with them. It starts no goroutine of
// its own.
package modules
