package telemetry

import (
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"
	"time"
)

// Process is the resource usage of this process.
type Process struct {
	CPU    time.Duration // processor time of all threads since the process started
	Memory uint64        // resident memory, in bytes
}

// ReadProcess reads the resource usage of this process. If the system does not
// report resident memory, Memory is the memory that the Go runtime has obtained
// from the system. Values that cannot be read are 0.
func ReadProcess() Process {
	p := Process{CPU: processorTime()}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := bytes.Fields(text); len(fields) > 1 {
			pages, _ := strconv.ParseUint(string(fields[1]), 10, 64)
			p.Memory = pages * uint64(os.Getpagesize())
		}
	}
	if p.Memory == 0 {
		p.Memory = runtimeMemory()
	}
	return p
}

func runtimeMemory() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() - s[1].Value.Uint64()
}
