// Package roles has the commands for permissions: roles, role bindings, and the
// caller's own permissions. It starts no goroutine of its own.
package roles
