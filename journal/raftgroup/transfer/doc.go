// Package transfer models a snapshot on its way to another node: the question
// that the sender asks first, the bytes that it sends, and any damage that it
// finds in the snapshot's file.
//
// The raft groups decide which state is sent, to which replica and when. The
// package starts no goroutine.
package transfer
