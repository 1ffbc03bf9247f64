// Package roles has the commands about who may do what: roles, who has them,
// and what a caller may do itself. It starts no goroutine of its own.
package roles
