// Package authz decides what callers may do. Roles and role bindings are
// compiled into an immutable Table, which decides each call. It neither
// identifies callers nor knows requests, and it has no goroutine. A decision
// allocates nothing.
package authz
