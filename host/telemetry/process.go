package telemetry

import (
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"
	"time"
)

// Process is what this process takes of the machine.
type Process struct {
	CPU    time.Duration // since it started, of all its threads
	Memory uint64        // that is resident, in bytes
}

// ReadProcess reads what this process takes. Where the system does not say how
// much of its memory is resident, that is what Go's runtime has of the system.
// What cannot be read is 0.
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
