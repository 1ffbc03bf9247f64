// Package cases tests modules by files of cases, in whatever language a module
// is written: given these events, when this command comes, then these events,
// this reply, this state. It runs the very .wasm in the engine that nodes have,
// and holds it to what a node relies on besides what a case says.
//
// It calls no node, writes no file and starts no goroutine.
package cases
