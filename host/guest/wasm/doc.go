// Package wasm reads modules in WebAssembly's binary format, admits them and
// rewrites them so that they count what they do.
//
// Admit checks that a module has a shape that the host relies on, is within the
// bounds of what compiling and an instance of it may take, and imports and exports
// what it is asked to. AdmitMetered also plans where each function is charged, and
// Metered.Rewrite writes the module again with that: fuel for what runs, and stack
// for calls within calls. What a module computes does not change, and what it is
// charged is a function of the module alone, so that nodes agree on both;
// abi/FUEL.md has the weights.
//
// The package never compiles or runs a module: it has no runtime. What it reads is
// hostile, so its work and memory are bounded by the size of the module. It owns no
// goroutine.
package wasm
