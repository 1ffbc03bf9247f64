// Package limit bounds what the entities of a type do in a second on a node,
// over all lanes: how many commands, and what these spend.
//
// It never waits: it says for how long a command has to. All of it is safe for
// concurrent use.
// The package starts no goroutine.
package limit
