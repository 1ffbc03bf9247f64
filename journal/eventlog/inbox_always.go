//go:build !mutant_70

package eventlog

// checkInbox false would be a planted fault.
const checkInbox = true
