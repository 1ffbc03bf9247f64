//go:build !mutant_6

package eventlog

// checkFence makes apply discard what was proposed in another term.
const checkFence = true
