// Package sendstream carries the commands of a SendStream call. Each message is
// a batch that goes to the runtime at once; answers go out together, as many as
// there are when the client can take more. Bounded are a stream's commands and
// bytes in flight: beyond them it reads no further.
//
// A call has two goroutines, the caller's that reads and one that writes, which
// is joined before the call ends. Completions come from whoever ends a request,
// lanes mostly, and never block.
package sendstream
