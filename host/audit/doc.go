// Package audit writes a node's audit log: who called what, and how the call
// ended. Each entry is one line of JSON in a file that is rotated. The log
// never contains the data sent to entities or their replies.
//
// Each line holds the SHA-256 of the previous line, so that Verify detects
// changed, removed and inserted lines. That alone doesn't stop an attacker who
// can write the file, because the hashes can be computed again. So the node
// writes checkpoints: lines with a signature that covers the hash of the
// previous line, and with it all lines before. Two attacks remain: an attacker
// who has the node's key can rebuild the whole log, and anybody who can write
// the file can remove its last lines. To detect these, an operator has to store
// the head of the log, which is the hash of its last line, in another place and
// pass it to Verify later.
//
// The owner of a Log runs Run in one goroutine, which does all the writing.
// Callers pass lines to it through a queue; the number of queued lines and the
// length of a line are bounded.
package audit
