package bench

import "time"

// Usage is the resource usage of a process.
type Usage struct {
	CPU       time.Duration // user and system time since it started
	Anonymous uint64        // current memory in bytes that is not backed by a file
	Files     uint64        // current memory in bytes that is backed by a file
	Peak      uint64        // maximum of Anonymous and Files together so far
	// Switches is how often its threads have waited for other threads, the
	// network or the disk. Threads that have ended are not counted.
	Switches uint64
}

// Processes are the processes that are measured together.
type Processes []int

// CPU returns the total processor time of the processes since they started;
// false if a process has ended or the system does not report it.
func (p Processes) CPU() (total time.Duration, ok bool) {
	u, ok := p.Usage()
	return u.CPU, ok
}

// Usage returns the total usage of the processes, under the same conditions as
// CPU.
func (p Processes) Usage() (total Usage, ok bool) {
	for _, pid := range p {
		u, err := ReadUsage(pid)
		if err != nil {
			return Usage{}, false
		}
		total.CPU += u.CPU
		total.Anonymous += u.Anonymous
		total.Files += u.Files
		total.Peak += u.Peak
		total.Switches += u.Switches
	}
	return total, len(p) > 0
}
