// Package authorize holds calls to the roles of their callers, before anything
// of them is carried out: unary calls and the first message of a stream by
// what they are about, each command of a SendStream by itself. Streams that
// the roles of now do not allow any more are ended. It never decides by itself:
// a table of host/authz does, which its owner swaps.
//
// It has no goroutine.
package authorize
