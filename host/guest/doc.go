// Package guest runs guests. It admits an uploaded module and meters it (package
// wasm rewrites it), compiles and tries it, keeps modules by digest and calls
// their instances. It is the only package that imports the Wasm runtime.
//
//   - An Engine compiles modules and makes instances of them. A compilation and
//     its trial run in a child process (CompileChild), because a hostile module
//     may take any time and memory there. The compiled file is sealed with a key
//     in a cache directory.
//   - A Registry keeps the bytes of modules in files of a directory, and compiled
//     ones in memory. It never decides which module serves an entity type, never
//     fetches one from a peer and never removes one by itself.
//   - CheckSchemas says whether what a module calls JSON Schema 2020-12 is that,
//     before the module is taken. Payloads are checked by abi/schema.
//
// The package never decides what an entity is, never retries and never interprets
// the frames that cross, except to count events: it carries bytes in and copies
// bytes out. A guest gets no file, socket, argument, environment variable, wall
// clock or true randomness from it, and no more of the processor than its call's
// budget of fuel.
//
// The package owns no goroutine: a compilation runs in the goroutine of the first
// caller who wants the module. An Engine, a Module and a Registry are safe for
// concurrent use; an Instance belongs to one goroutine.
package guest
