// Package admission limits what callers of the API can use of a node, and
// rejects requests that are not meant for it. Some limits apply before a service
// sees the call; services and streams ask for the other limits to be
// checked. Connections, streams and uploads are shared between client
// addresses; bodies, waiting bytes and the duration of calls have limits.
// The package rejects requests from pages of other origins, calls for a
// different cluster, calls before the node is open, and requests that
// arrived before a pause of the process.
//
// It never interprets messages and starts no goroutine. Every resource has a
// release function that its user calls.
package admission
