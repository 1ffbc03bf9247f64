// Package wasm reads modules in WebAssembly's binary format and admits them:
// it checks that a module has a shape that the host relies on, is within the
// bounds of what compiling and an instance of it may take, and imports and
// exports what it is asked to.
//
// It never compiles or runs a module, and never rewrites one: it has no
// runtime. What it reads is hostile: its work and memory are bounded by the
// size of the module. It owns no goroutine.
package wasm
