// Package resident knows which entities of a lane are in memory: it finds them
// by name, says which of them the lane can do without best, and which are asked
// for most.
//
// It never loads an entity or lets one go. Its types belong to the lane's
// goroutine.
package resident
