package main

import (
	"log/slog"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory derives the limit of Go's heap from the memory limit of the
// control group, unless GOMEMLIMIT is set. Otherwise a node in a container
// would collect garbage only according to the growth of its heap, and would be
// killed at the limit.
//
// The memory of guest instances is not part of Go's heap, so it is subtracted.
// A tenth of the limit remains for the stacks of threads, mappings and kernel
// buffers.
func limitMemory(guests uint64, logger *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	group, ok := groupMemory("/")
	if !ok {
		return
	}
	limit, enough := heapLimit(group, guests)
	if !enough {
		logger.Warn("guest-memory-bytes leaves little of the control group's memory for the node: lower it, or raise the limit", "group", group, "guest-memory-bytes", guests)
	}
	debug.SetMemoryLimit(int64(limit))
	logger.Info("the heap is limited by the control group's memory", "group", group, "heap", limit)
}

// heapLimit returns the limit of the heap in a control group. It is at least a
// quarter of the group's memory; enough is false if that minimum had to be
// enforced.
func heapLimit(group, guests uint64) (limit uint64, enough bool) {
	limit = group / 10 * 9
	if limit < guests || limit-guests < group/4 {
		return group / 4, false
	}
	return limit - guests, true
}

// groupMemory returns the memory limit of this process's control group,
// which is the minimum of the limits of the group and of its ancestors. root
// is the directory where the file systems are mounted.
func groupMemory(root string) (bytes uint64, ok bool) {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0, false
	}
	bytes = math.MaxInt64
	take := func(file string) {
		text, err := os.ReadFile(file)
		if err != nil {
			return
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 63); err == nil && n < bytes {
			bytes, ok = n, true // "max" doesn't parse
		}
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		switch {
		case fields[0] == "0" && fields[1] == "":
		case fields[1] == "memory":
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for at := path.Clean("/" + fields[2]); ; at = path.Dir(at) {
			take(filepath.Join(root, dir, at, file))
			if at == "/" {
				break
			}
		}
	}
	return bytes, ok && bytes < 1<<60 // version 1 uses a huge number for "no limit"
}
