// Package entity decides commands and answers queries of entities by calling
// guests, and turns each decision into one record of the journal. Decisions run
// ahead of durability; outcomes never do: every reply, query result and
// rejection waits until all it saw is committed.
//
// It has no goroutine, clock, disk or socket, and no lock. Package lane is the
// loop around it, and has no more of it than Turns. So a model can drive it
// step by step.
package entity
