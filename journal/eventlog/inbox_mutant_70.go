//go:build mutant_70

package eventlog

// checkInbox false is a planted fault: a send that is delivered again has its
// effect again.
const checkInbox = false
