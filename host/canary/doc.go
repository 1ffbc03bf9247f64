// Package canary is by what a module that serves a part of a type is judged:
// what it and the older one did, and the rules that have it go back.
//
// It knows neither nodes nor modules, and starts no goroutine.
package canary
