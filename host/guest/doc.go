// Package guest runs guest modules. It admits an uploaded module, adds metering
// to it (package wasm does the rewriting), compiles and tries it, stores
// modules by digest and calls instances of these modules. It is the only
// package that imports the Wasm runtime.
//
//   - An Engine compiles modules and creates their instances. If a compile
//     command is configured, a compilation and its trial run in a child process
//     (CompileChild) first, because a hostile module may use any amount of time
//     and memory there. Compiled files are kept in a cache directory and sealed
//     with a key.
//   - A Registry stores the bytes of modules as files in a directory and holds
//     compiled modules in memory. It never decides which module serves an
//     entity type, never fetches a module from a peer and never removes one on
//     its own.
//   - CheckSchemas checks that the JSON Schemas of a manifest are valid JSON
//     Schema 2020-12 before the module is accepted. Package abi/schema
//     validates payloads.
//
// The package does not know what an entity is, never retries and does not
// interpret the frames it transports, except to count events: it copies bytes
// in and copies bytes out. It gives a guest no file, socket, argument,
// environment variable, wall clock or true randomness, and no more processor
// time than the fuel budget of the call.
//
// The package owns no goroutine: a compilation runs in the goroutine of the
// first caller that needs the module. An Engine, a Module and a Registry are
// safe for concurrent use; an Instance belongs to one goroutine.
package guest
