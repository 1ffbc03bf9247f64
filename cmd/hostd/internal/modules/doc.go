// Package modules has the commands about modules other than upload and
// activation: keys, signatures, differences, verification, rollouts and
// history. It starts no goroutine of its own.
package modules
