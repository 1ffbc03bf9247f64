// Package instances are the guests of a lane: which entities' states each of
// them holds, by which handles, and which have room for another.
//
// It decides neither who leaves nor when an instance is closed, and starts no
// goroutine: a Lane does both, and visits the guests.
package instances
