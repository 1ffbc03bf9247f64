// Package meter rewrites admitted modules to count what they do: fuel for
// what runs, and stack for calls within calls. It plans where each function
// is charged while package wasm reads it, and writes the module again with
// that.
//
// What a module computes does not change, and what it is charged is a
// function of the module alone: nodes agree on both. The package has no
// runtime and owns no goroutine; abi/FUEL.md has its weights.
package meter
