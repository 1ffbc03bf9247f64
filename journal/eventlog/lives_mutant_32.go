//go:build mutant_32

package eventlog

// keysOfOldLives true is a planted fault: a life begins among the keys of the
// one before it.
const keysOfOldLives = true
