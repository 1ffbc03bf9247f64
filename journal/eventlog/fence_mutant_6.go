//go:build mutant_6

package eventlog

// checkFence false is a planted fault: an entry takes effect in any term.
const checkFence = false
