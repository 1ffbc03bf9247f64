//go:build mutant_75

package eventlog

// checkDue false is a planted fault: a timer that was set again, cancelled or
// fired meanwhile fires all the same.
const checkDue = false
