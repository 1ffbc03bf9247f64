package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestStacksAreBounded checks that only a bounded part of a profile with
// many goroutines is logged.
func TestStacksAreBounded(t *testing.T) {
	var profile strings.Builder
	profile.WriteString("goroutine profile: total 100000\n")
	for i := range 1000 {
		fmt.Fprintf(&profile, "%d @ 0x1 0x2\n", 1000-i)
		for f := range 40 {
			fmt.Fprintf(&profile, "#\t0x%x\tgithub.com/hostd/hostd/host.(*Node).run%d+0x1c\t\t/src/host/node.go:%d\n", f, f, f)
		}
		profile.WriteString("\n")
	}
	stacks, left := stacksOf([]byte(profile.String()))
	size := 0
	for _, s := range stacks {
		size += len(s.frames)
		if n := strings.Count(s.frames, "("); n > 3*maxStackFrames {
			t.Errorf("%d frames", n)
		}
	}
	if len(stacks) > maxStacks || len(stacks)+left != 1000 || size > maxStackBytes+4<<10 || stacks[0].count != 1000 {
		t.Errorf("%d stacks with %d bytes, %d left, %+v", len(stacks), size, left, stacks[0])
	}
	if want := "host.(*Node).run0 (node.go:0) < host.(*Node).run1 (node.go:1) < "; !strings.HasPrefix(stacks[0].frames, want) {
		t.Errorf("%s", stacks[0].frames)
	}
}

// TestGoroutinesAreLogged logs the goroutines of this process.
func TestGoroutinesAreLogged(t *testing.T) {
	var log strings.Builder
	logGoroutines(slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.Contains(log.String(), "msg=goroutines count=") || !strings.Contains(log.String(), "TestGoroutinesAreLogged") {
		t.Error(log.String())
	}
}
