// Package authz decides what callers may do: roles and their bindings are
// compiled into a Table, which never changes, and is asked for each call. It
// never asks who calls, knows no request, and keeps nothing. It has no
// goroutine, and a decision allocates nothing.
package authz
