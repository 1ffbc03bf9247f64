//go:build !mutant_75

package eventlog

// checkDue makes the record of a timer take effect only while the timer is set.
const checkDue = true
