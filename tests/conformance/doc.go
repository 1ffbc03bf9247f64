// Package conformance runs the example guests in the engine: the conformance
// suite of abi/abitest, and benchmarks of guests. It contains only tests and
// starts no goroutine.
package conformance
