package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/hostd/hostd/host/request"
)

// A child process compiles an uploaded module first and leaves the result in
// the compilation cache. Compiling in this process would be unsafe: a
// compilation cannot be cancelled, a malicious module can make it take
// minutes and gigabytes, and a panic in one of the compiler's workers ends
// the process. The child also runs the module's trial.
//
// The child runs the same program. It reads one line of JSON and the prepared
// module from standard input and reports the outcome by its exit code. If it
// rejects the module, it writes the reason to standard error as JSON.

// compileOrder is the request to a child. The module follows it.
type compileOrder struct {
	CacheDir string        `json:"cacheDir"` // compilation cache to write to
	Limits   abi.Limits    `json:"limits"`
	CPU      time.Duration `json:"cpu"` // CPU time limit
}

// Exit codes of a child. A Go panic exits with 2.
const (
	compileRefused = 3 // the module is at fault
	failed         = 4 // the child could not do its work
)

const (
	// patience is the wall-clock time limit of a child as a multiple of its CPU
	// time limit. It is generous, because a module should be rejected for its
	// own needs and not for other load on the machine.
	patience = 4

	maxSaid  = 4 << 10  // maximum bytes kept of a child's standard error
	maxOrder = 64 << 10 // maximum bytes of an order
)

// serveCompile is the child's side. It reads an order and a prepared module
// from in, lowers the resource limits and the priority of this process, calls
// compile and returns the exit code. The error text goes to said. If compile
// returns a *wasm.AdmissionError, the module is at fault.
func serveCompile(in io.Reader, said io.Writer, compile func(compileOrder, []byte) error) (exitCode int) {
	buffered := bufio.NewReaderSize(in, maxOrder)
	line, err := buffered.ReadSlice('\n')
	var order compileOrder
	if err == nil {
		err = json.Unmarshal(line, &order)
	}
	var prepared []byte
	if err == nil {
		prepared, err = io.ReadAll(buffered)
	}
	if err == nil {
		err = limitChild(order.CPU)
	}
	if err == nil {
		err = compile(order, prepared)
	}
	if err == nil {
		return 0
	}
	var refused *wasm.AdmissionError
	if errors.As(err, &refused) {
		if text, jsonErr := json.Marshal(refused); jsonErr == nil {
			said.Write(text)
			return compileRefused
		}
	}
	fmt.Fprint(said, err)
	return failed
}

// compileChild starts child processes.
type compileChild struct {
	Command []string // program and arguments; the program must call CompileChild
	Order   compileOrder
	Wait    time.Duration // wall-clock time limit
	Logger  *slog.Logger
}

// newCompileChild returns a compileChild whose wall-clock time limit is four
// times the CPU time of the order.
func newCompileChild(command []string, order compileOrder, logger *slog.Logger) *compileChild {
	return &compileChild{Command: command, Order: order, Wait: patience * order.CPU, Logger: logger}
}

// Compile runs a child for a prepared module and waits until it exits or ctx is
// done. The error is a *wasm.AdmissionError if the module is at fault.
func (c *compileChild) Compile(ctx context.Context, prepared []byte) error {
	order, err := json.Marshal(c.Order)
	if err != nil {
		return fmt.Errorf("compile in a child process: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	command := exec.CommandContext(bounded, c.Command[0], c.Command[1:]...)
	command.Env = []string{"GOTRACEBACK=none"}
	command.Stdin = io.MultiReader(bytes.NewReader(append(order, '\n')), bytes.NewReader(prepared))
	said := &cappedBuffer{}
	command.Stderr = said
	command.WaitDelay = time.Second
	command.SysProcAttr = childAttributes()
	// The child must die together with this process. The kernel ties the child to
	// the thread that started it, so the thread must not end early.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = command.Run()
	if ended := command.ProcessState; ended != nil {
		request.AddProcessorTime(ctx, ended.UserTime()+ended.SystemTime())
	}
	return c.outcome(ctx, bounded, err, said.String())
}

func (c *compileChild) outcome(ctx, bounded context.Context, err error, said string) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("compile a module: %w", ctx.Err())
	case bounded.Err() != nil:
		return fmt.Errorf("compile in a child process: no result after %v, the machine may be overloaded: %w", c.Wait, bounded.Err())
	case !errors.As(err, &exit):
		return fmt.Errorf("compile in a child process: %w", err)
	case exit.ExitCode() == compileRefused:
		return refusedByChild(said)
	case exit.ExitCode() == failed:
		return fmt.Errorf("compile in a child process: %s", said)
	}
	c.Logger.Warn("the compiler process died", "state", exit.String(), "said", said)
	return wasm.Refuse("code", "the compiler crashed, or needed too much time or memory; split large functions and build it again")
}

// refusedByChild parses a child's rejection of a module.
func refusedByChild(said string) error {
	refused := &wasm.AdmissionError{}
	if err := json.Unmarshal([]byte(said), refused); err != nil || refused.Reason == "" {
		return wasm.Refuse("code", "%s", wasm.Shorten(said))
	}
	return wasm.Refuse(wasm.Shorten(refused.Where), "%s", wasm.Shorten(refused.Reason))
}

// cappedBuffer keeps the first maxSaid bytes written to it.
type cappedBuffer struct{ strings.Builder }

func (b *cappedBuffer) Write(data []byte) (int, error) {
	b.Builder.Write(data[:min(len(data), maxSaid-b.Len())])
	return len(data), nil
}
