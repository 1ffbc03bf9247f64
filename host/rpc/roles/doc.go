// Package roles implements the API calls about roles, role bindings and the
// tokens that the cluster stores. It passes changes to a Store. It authorizes no
// calls and starts no goroutine.
package roles
