package bench

import "time"

// Usage is what a process has taken of the machine.
type Usage struct {
	CPU       time.Duration // user and system time since it started
	Anonymous uint64        // bytes of memory that no file is behind, now
	Files     uint64        // bytes of memory that are files', now
	Peak      uint64        // the most of both, so far
	// Switches are how often its threads have waited: for others, for the
	// network or the disk. Those of threads that have ended are not in it.
	Switches uint64
}

// Processes are those that together do what is measured.
type Processes []int

// CPU returns the processor time that all of them took since they started;
// false where a process is gone, or where the system does not tell.
func (p Processes) CPU() (total time.Duration, ok bool) {
	u, ok := p.Usage()
	return u.CPU, ok
}

// Usage returns what all of them took together, as CPU does.
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
