// Package spans analyzes a trace of the Go scheduler and reports where requests
// spend their time: which goroutines ran, which were runnable but waited for a
// processor, and which were in a system call. The traced program needs no
// instrumentation.
package spans
