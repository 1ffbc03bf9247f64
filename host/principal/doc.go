// Package principal identifies callers: by the kind of credential, the name and
// the groups. It defines the encodings in which nodes, guests and the journal
// receive a caller. It never looks at credentials, makes no decision, and starts
// no goroutine.
package principal
