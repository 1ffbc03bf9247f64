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

// takeProcessors adds them. Where it adds none Go goes on to follow the limits
// of the system.
func takeProcessors() {
	now := runtime.GOMAXPROCS(0)
	if n := processorsFor(now, runtime.NumCPU(), os.Getenv("GOMAXPROCS")); n != now {
		runtime.GOMAXPROCS(n)
	}
}

// processorsFor is how many goroutines may run at once, where it would be now
// and the machine has so many processors: no more than now if the environment
// says how many, or if a control group limits how much of them may be used, for
// what is used beyond that stops the process for the rest of a period.
func processorsFor(now, there int, said string) int {
	if said != "" || now < there {
		return now
	}
	return there + spareProcessors
}
