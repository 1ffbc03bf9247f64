// Package nodes has the other nodes as the raft groups of one see them: which
// are heard and which are silent, and on which of them the replicas of a group
// live.
//
// It counts ticks and looks at no clock. Its user says who was heard, and what
// follows from a silence.
// The package starts no goroutine.
package nodes
