// Package quickjs builds guests that are written in TypeScript or JavaScript.
// A script is bundled with the SDK and put into an engine for JavaScript, the
// module of the npm package quickjs-wasi, which is taken from the project's own
// node_modules. What comes of it is an ordinary module of the guest contract:
// the engine's functions stay as they are, and those of the contract are
// written over them.
//
// A project is a directory with a package.json that depends on quickjs-wasi.
// Its main member names the script, or the script is the first that is there of
// src/index.ts, index.ts, src/index.js and index.js. Build reads the project
// and writes one file; it runs none of the project's code and starts no process
// and no goroutine that outlives it. The module of the same sources is the same
// bytes.
package quickjs
