// Package security holds tests of what a node lets whom do: on each of its
// listeners, by what a caller shows of itself.
package security
