// Package trial compares what another module does with what the one that serves
// does. A canary serves a share of a type's entities, and its counts of commands,
// rejections, faults and durations are judged by rules. A shadow decides on copies
// of commands, and what it puts out goes nowhere else.
//
// The package runs no guest and starts no goroutine.
package trial
