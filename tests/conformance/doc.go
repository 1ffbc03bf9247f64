// Package conformance runs the example guests through the engine: the
// conformance suite of abi/abitest, and benchmarks of what a guest costs.
// It has tests only, and starts no goroutine.
package conformance
