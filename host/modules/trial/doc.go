// Package trial compares a new module of a type with the serving module. A
// canary serves a share of the type's entities, and rules limit its
// rejections, faults and durations. A shadow decides on copies of commands,
// and its output has no other effect.
//
// The package runs no guest and starts no goroutine.
package trial
