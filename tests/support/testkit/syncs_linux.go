package testkit

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// NeedStrace skips a test if strace cannot manipulate the system calls of a
// node, and reports the reason.
func NeedStrace(t testing.TB) {
	t.Helper()
	needRoot(t, "a fault of the disk under a node", "strace")
}

// InjectSyncs manipulates every fdatasync of the node's process. inject is an
// argument of strace's option -e inject, such as "delay_enter=200000"
// (microseconds) or "error=EIO". InjectSyncs returns when strace is attached.
// The effect ends when the returned function is called or the process ends.
func (n *Node) InjectSyncs(inject string) (end func()) {
	n.t.Helper()
	var log tail
	cmd := exec.Command("strace", "-f", "-p", fmt.Sprint(n.cmd.Process.Pid),
		"-e", "trace=fdatasync", "-e", "inject=fdatasync:"+inject)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // strace ends by a signal or with the process
		close(ended)
	}()
	n.Await("strace is attached", func() bool {
		select {
		case <-ended:
			n.t.Skipf("strace cannot be attached to the node: %s", log.String())
		default:
		}
		return strings.Contains(log.String(), "attached")
	})
	done := false
	end = func() {
		if done {
			return
		}
		done = true
		_ = cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-ended:
		case <-time.After(2 * time.Second):
			_ = cmd.Process.Kill() // strace would wait for a call that it delays; after a kill, the kernel resumes that call
			<-ended
		}
	}
	n.t.Cleanup(end)
	return end
}
