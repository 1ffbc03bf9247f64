package main

import (
	"os"
	"runtime"
)

// spareProcessors is how many goroutines may run at once beyond the processors
// that there are. Go runs as many as there are processors, for 10 ms each where
// others wait, and whoever keeps them all, a merge and a collection of garbage
// say, keeps commands: that something came from the network is then noticed each
// 10 ms, and waits behind the rest of the queue. With some to spare the system
// divides the processors among threads, in shorter slices and first to those
// that have had least.
const spareProcessors = 2

// takeProcessors adds them, unless the environment says how many there are to be
// or a control group limits how much of them may be used: what is used beyond
// that stops all for the rest of a period.
func takeProcessors() {
	if n := runtime.GOMAXPROCS(0); os.Getenv("GOMAXPROCS") == "" && n == runtime.NumCPU() {
		runtime.GOMAXPROCS(n + spareProcessors)
	}
}
