// Package wasm reads modules in WebAssembly's binary format, admits them and
// rewrites them so that they meter themselves.
//
// Admit checks that a module has the shape that the host relies on, that
// compiling and instantiating it stay within bounds, and that it has the
// required imports and exports. AdmitMetered also plans where each function
// is charged, and Metered.Prepare rewrites the module accordingly: it counts
// fuel for the instructions that run and stack for nested calls. Rewriting
// does not change what a module computes. The charges depend only on the
// module, so all nodes agree on results and charges. abi/FUEL.md lists the
// weights.
//
// The package never compiles or runs a module. Its input is hostile, so its
// work and memory are bounded by the size of the module. It owns no goroutine.
package wasm
