// Package cases tests modules in any language with case files: given these
// events, when this command arrives, then expect these events, this reply and
// this state. It runs the actual .wasm file in the engine of the nodes, and
// also checks everything that a node relies on.
//
// It calls no node, writes no file and starts no goroutine.
package cases
