// Package admission bounds what whoever reaches the API may take of a node,
// and refuses what is not for it. Some bounds apply before a service sees the
// call; services and streams take the others. Connections, streams and uploads
// are shared out between addresses; bodies, the bytes that wait, and the time
// of a call have limits. Refused are pages of other origins, calls for another
// cluster, calls before the node is open, and what arrived before the process
// stood still.
//
// It never looks into a message, and starts no goroutine. What it bounds gives
// its place back itself.
package admission
