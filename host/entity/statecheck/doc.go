// Package statecheck finds guests that are not pure: of some entities that
// leave memory it builds the state a second time, from the journal, and
// compares.
//
// It disturbs no lane and changes no entity. A Checker owns one goroutine,
// which Close joins.
package statecheck
