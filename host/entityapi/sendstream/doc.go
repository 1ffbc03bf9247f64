// Package sendstream runs the commands of a SendStream call. Each message is a
// batch that is submitted to the runtime at once. Answers are sent together: as
// many as are ready when the client can accept more. The commands and bytes in
// flight of a stream are limited; at the limit it stops reading.
//
// A call has two goroutines: the caller's reads, and a second one writes, which
// is joined before the call ends. Completions are called by whichever goroutine
// ends a request, mostly an executor's, and never block.
package sendstream
