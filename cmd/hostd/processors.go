package main

import (
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// spareProcessors is how many goroutines may run at once beyond the processors
// that there are. Go runs as many as there are processors, for 10 ms each where
// others wait, and whoever keeps them all, a merge and a collection of garbage
// say, keeps commands: that something came from the network is then noticed
// each 10 ms, and waits behind the rest of the queue. With some to spare the
// system divides the processors among threads, in shorter slices and first to
// those that have had least.
const spareProcessors = 2

// takeProcessors adds them, unless the environment says how many there are to
// be, or something limits what may be used of them: what is used beyond a quota
// stops the process for the rest of a period. Where it adds none Go goes on to
// follow the limits of the system.
func takeProcessors() {
	now := runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") == "" && now == runtime.NumCPU() && !cpuQuota(os.DirFS("/")) {
		runtime.GOMAXPROCS(now + spareProcessors)
	}
}

// cpuQuota reports whether a control group of the process, or one around it,
// bounds its CPU time; root is the root of the file system. Go looks at the
// process's own group only, and its limit is never below two processors.
func cpuQuota(root fs.FS) bool {
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:group
		if len(parts) < 3 {
			continue
		}
		base, file := "sys/fs/cgroup/cpu", "cpu.cfs_quota_us"
		switch {
		case parts[1] == "": // version 2
			base, file = "sys/fs/cgroup", "cpu.max"
		case !slices.Contains(strings.Split(parts[1], ","), "cpu"):
			continue
		}
		for group := path.Join("/", parts[2]); ; group = path.Dir(group) {
			quota, _ := fs.ReadFile(root, path.Join(base, group, file))
			if f := strings.Fields(string(quota)); len(f) > 0 && f[0] != "max" && !strings.HasPrefix(f[0], "-") {
				return true
			}
			if group == "/" {
				break
			}
		}
	}
	return false
}
