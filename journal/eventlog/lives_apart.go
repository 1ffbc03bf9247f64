//go:build !mutant_32

package eventlog

// keysOfOldLives true would be a planted fault.
const keysOfOldLives = false
