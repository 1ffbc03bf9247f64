// Package engine runs guests: it has an uploaded module admitted and metered,
// compiles and tries it, and calls its instances. It is the only package that
// imports the Wasm runtime.
//
// It never decides what an entity is, never retries and never interprets the
// frames that cross, but to count events: it carries bytes in and copies bytes
// out. A guest gets no file, socket, argument, environment variable, wall
// clock or true randomness from it, and no more of the processor than its
// call's budget of fuel.
//
// The package owns no goroutine. An Engine and a Module are safe for
// concurrent use; an Instance belongs to one goroutine.
package engine
