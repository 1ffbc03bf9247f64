// Package quickjs builds guests that are written in TypeScript or JavaScript.
// It bundles a script with the SDK and embeds it in a JavaScript engine, the
// module of the npm package quickjs-wasi, which it reads from the project's own
// node_modules. The result is an ordinary module of the guest contract: the
// engine's functions are unchanged, and the functions of the contract are added
// on top of them.
//
// A project is a directory with a package.json that depends on quickjs-wasi.
// Its main member names the script; by default the script is the first that
// exists of src/index.ts, index.ts, src/index.js and index.js. Build reads the
// project and writes one file. It runs none of the project's code, and starts
// no process and no goroutine that outlives it. The same sources always produce
// the same bytes.
package quickjs
