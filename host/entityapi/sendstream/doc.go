// Package sendstream runs the commands of a SendCommandStream call. Each message is a
// batch that is submitted to the runtime at once. All answers that are ready
// when the client can accept more are sent together. The commands and bytes in
// flight of a stream are limited; at the limit the stream stops reading.
//
// A call has two goroutines: that of the caller reads, and a second one writes,
// which is joined before the call ends. Completions are called by whichever
// goroutine ends a request, mostly an executor's, and never block.
package sendstream
