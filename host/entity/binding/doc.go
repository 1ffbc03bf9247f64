// Package binding is what a lane knows of the code that it runs: an entity type
// with the module that serves it, the guests that are instances of the module,
// and what a guest may know of the world.
//
// It makes and calls no guest, and starts no goroutine.
package binding
