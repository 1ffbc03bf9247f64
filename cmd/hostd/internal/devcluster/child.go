package devcluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Child is a child process that runs this same program. If the system supports
// it, the child dies when its parent does, for whatever reason.
type Child struct {
	name string
	PID  int
	Done chan struct{} // closed when the process has ended
	err  error         // result of the process; valid after done
}

// StartChild runs this program with other arguments, in its own process group,
// so that an interrupt at the terminal reaches only the parent. The child's
// standard input is empty; env is added to its environment. A goroutine waits
// for the process until it ends.
func StartChild(name string, args []string, stdout, stderr io.Writer, env ...string) (*Child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if len(env) > 0 {
		cmd.Env = append(os.Environ(), env...)
	}
	cmd.SysProcAttr = childAttributes()
	c := &Child{name: name, Done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(c.Done)
		// The system sends the parent-death signal when the thread that started
		// the child ends, so the thread is locked for as long as the child
		// lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			c.PID = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			c.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// signal sends a signal, unless the child has ended.
func (c *Child) signal(s syscall.Signal) {
	select {
	case <-c.Done:
	default:
		send(c.PID, s)
	}
}

// Kill kills the child without warning, as a power failure would, and waits for
// its end.
func (c *Child) Kill() {
	c.signal(syscall.SIGKILL)
	<-c.Done
}

// stop asks the child to end, waits for it, and kills it after the grace
// period.
func (c *Child) stop(grace time.Duration) error {
	c.signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.Done:
	case <-timer.C:
		c.Kill()
		return fmt.Errorf("%s did not stop within %s and was killed", c.name, grace)
	}
	var exit *exec.ExitError
	if errors.As(c.err, &exit) && !endedBy(exit.Sys().(syscall.WaitStatus), syscall.SIGTERM) {
		return fmt.Errorf("%s: %w", c.name, c.err)
	}
	return nil
}
