// Package sendstream runs the commands of a SendCommandStream call. Each message is a
// batch that is submitted to the runtime at once. All answers that are ready
// when the client can accept more are sent together. The commands and bytes in
// flight of a stream are limited; at the limit the stream stops reading.
//
// A call has two goroutines: the caller's goroutine reads, and a second one,
// which is joined before the call ends, writes. Completions are called by
// whichever goroutine ends a request, mostly an executor's, and never block.
package sendstream
