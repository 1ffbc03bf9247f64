// Package authorize checks calls against the roles of their callers before any
// part of the call is carried out. Unary calls and server streams are decided by
// their first message; each command of a SendCommandStream is decided on its own.
// Streams that a change of roles no longer allows are ended. The package
// contains no rules itself: a table of host/authz decides, which the owner of
// the Authorizer replaces.
//
// It starts no goroutine.
package authorize
