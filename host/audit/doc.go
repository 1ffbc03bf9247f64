// Package audit writes a node's audit log: who called what, and how the call
// ended. Each entry is one line of JSON in a file that is rotated. Each line
// holds the SHA-256 of the previous line, so that Verify detects changed,
// removed and inserted lines. The log never contains the data sent to entities
// or their replies.
//
// The owner of a Log runs Run in one goroutine, which does all the writing.
// Callers pass lines to it through a queue; the number of queued lines and the
// length of a line are bounded.
package audit
