package main

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/pprof"
	"strings"
)

// Bounds of a log of the goroutines.
const (
	maxStacks      = 200      // groups with the same stack
	maxStackFrames = 12       // frames of each group that are logged
	maxStackBytes  = 64 << 10 // total size of the logged stacks
)

// logGoroutines logs the number of goroutines and their stacks: one line for
// each group with the same stack, the largest groups first. It logs at most 200
// groups and 64 KiB. It needs no lock of a node, so that it works while a node
// is stuck.
func logGoroutines(logger *slog.Logger) {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		logger.Error("cannot read the goroutines", "error", err)
		return
	}
	stacks, left := stacksOf(profile.Bytes())
	logger.Info("goroutines", "count", runtime.NumGoroutine(), "stacks", len(stacks)+left, "omitted_stacks", left)
	for _, s := range stacks {
		logger.Info("goroutine stack", "count", s.count, "stack", s.frames)
	}
}

type stack struct {
	count  int
	frames string
}

// stacksOf reads a goroutine profile in text form. It returns the groups
// that are within the bounds, and the number of the other groups.
func stacksOf(profile []byte) (out []stack, left int) {
	lines := bufio.NewScanner(bytes.NewReader(profile))
	lines.Buffer(nil, 1<<20)
	bytesUsed, frames := 0, 0
	for lines.Scan() {
		line := lines.Text()
		var count int
		switch {
		case strings.Contains(line, " @ ") && !strings.HasPrefix(line, "#"):
			if _, err := fmt.Sscanf(line, "%d @", &count); err != nil {
				continue
			}
			if frames = 0; left > 0 || len(out) == maxStacks || bytesUsed >= maxStackBytes {
				left++
				continue
			}
			out = append(out, stack{count: count})
		case strings.HasPrefix(line, "#\t0x") && left == 0 && len(out) > 0 && frames < maxStackFrames:
			fields := strings.Fields(line) // "#", address, function+offset, file:line
			if len(fields) < 4 {
				continue
			}
			function, _, _ := strings.Cut(fields[2], "+0x")
			if at := strings.LastIndexByte(function, '/'); at >= 0 {
				function = function[at+1:]
			}
			file := fields[3][strings.LastIndexByte(fields[3], '/')+1:]
			last := &out[len(out)-1]
			if frames > 0 {
				last.frames += " < "
			}
			last.frames += function + " (" + file + ")"
			bytesUsed += len(function) + len(file) + 6
			frames++
		}
	}
	return out, left
}
