// Package security tests the access control of nodes: what each listener
// permits, depending on the caller's credential.
package security
