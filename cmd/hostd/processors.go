package main

import (
	"os"
	"runtime"
)

// spareProcessors is how many more goroutines may run at a time than there are
// CPUs. Go hands processors on every 10 ms at most, in turn, and has no
// priorities: while the store builds tables on all of them, each step of a
// command waits for that long, and what arrives is not noticed. With some to
// spare the system decides, which runs what has waited first.
const spareProcessors = 2

// spareSome takes more processors than there are CPUs, unless somebody has said
// how many there are to be. It comes after what a node makes by their number.
func spareSome() {
	now := runtime.GOMAXPROCS(0)
	if want := processors(now, runtime.NumCPU(), os.Getenv("GOMAXPROCS")); want != now {
		runtime.GOMAXPROCS(want)
	}
}

// processors is how many to take. Where the system grants less time than there
// are CPUs, more than that would only be spent sooner, and then nothing runs.
func processors(now, cpus int, told string) int {
	if told != "" || now < cpus {
		return now
	}
	return now + spareProcessors
}
