// Package audit keeps account of who asked a node for what, and what came of
// it: one line of JSON each, in a file that is rotated. Each line holds the
// SHA-256 of the line before it, so that Verify finds lines that were changed,
// taken out or put in between. It never holds what was sent or answered.
//
// A Log has one goroutine, Run, which is its owner's: it alone writes. Callers
// hand it lines through a queue of a bounded number of bounded lines.
package audit
