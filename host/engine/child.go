package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/tetratelabs/wazero/experimental"
)

// A module from outside is compiled in a child process first, which leaves the
// result in the compilation cache: compiling cannot be cancelled, can take
// minutes and gigabytes for a module made to, and a panic in one of the
// compiler's workers ends its process. There it is also tried.
//
// The child is this program again. It reads one line of JSON and the prepared
// module from standard input, and says with its exit code how it went; why a
// module is refused stands on standard error, as JSON.

// childOrder is the line before the module.
type childOrder struct {
	CacheDir string        `json:"cacheDir"`
	Limits   abi.Limits    `json:"limits"`
	CPU      time.Duration `json:"cpu"`
}

const (
	childRefused = 3 // exit code: the module is at fault; 2 is the exit code of a Go panic
	childFailed  = 4 // exit code: the child could not do its work

	// childPatience is how many times its CPU time a child may take: a module
	// is refused for what it needs, not for what else the machine does.
	childPatience = 4

	childTextBytes  = 4 << 10
	childOrderBytes = 64 << 10
)

// CompileChild is what the command named by Options.CompileCommand must run:
// it compiles one module into the cache, tries it and returns the exit code. It lowers
// the limits and the priority of the process it is called in.
func CompileChild(in io.Reader, said io.Writer) (exitCode int) {
	buffered := bufio.NewReaderSize(in, childOrderBytes)
	line, err := buffered.ReadSlice('\n')
	var order childOrder
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
		err = compileIntoCache(order, prepared)
	}
	if err == nil {
		return 0
	}
	var refused *AdmissionError
	if errors.As(err, &refused) {
		if text, jsonErr := json.Marshal(refused); jsonErr == nil {
			said.Write(text)
			return childRefused
		}
	}
	fmt.Fprint(said, err)
	return childFailed
}

func compileIntoCache(order childOrder, prepared []byte) error {
	ctx := experimental.WithCompilationWorkers(context.Background(), runtime.GOMAXPROCS(0))
	e, err := New(ctx, Options{Limits: order.Limits, CacheDir: order.CacheDir, cacheIsVerified: true})
	if err != nil {
		return err
	}
	compiled, err := e.compileHere(ctx, prepared)
	if err == nil {
		err = e.tryCompiled(ctx, compiled)
	}
	return errors.Join(err, e.Close(ctx))
}

// tryCompiled gives a module its trial and closes it.
func (e *Engine) tryCompiled(ctx context.Context, compiled *compiledModule) error {
	if err := e.retain(); err != nil {
		return err
	}
	m := &Module{engine: e, compiled: compiled, description: &Description{}, logger: e.logger, users: 1}
	var err error
	if m.manifest, err = m.readManifest(ctx); err == nil {
		err = m.try(ctx)
	}
	var fault *Fault
	if errors.As(err, &fault) {
		err = refuse("trial", "%s", fault.Error())
	}
	return errors.Join(err, m.Close())
}

// compileInChild runs the child and waits for it.
func (e *Engine) compileInChild(ctx context.Context, prepared []byte) error {
	order, err := json.Marshal(childOrder{e.cache.dir, e.limits, e.compileTimeout})
	if err != nil {
		return fmt.Errorf("compile in a child process: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, e.compileWait)
	defer cancel()
	command := exec.CommandContext(bounded, e.compileCommand[0], e.compileCommand[1:]...)
	command.Env = []string{"GOTRACEBACK=none"}
	command.Stdin = io.MultiReader(bytes.NewReader(append(order, '\n')), bytes.NewReader(prepared))
	said := &cappedBuffer{}
	command.Stderr = said
	command.WaitDelay = time.Second
	command.SysProcAttr = childAttributes()
	// The child is to die with this process, and the kernel takes the thread
	// that started it for that.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return e.childOutcome(ctx, bounded, command.Run(), said.String())
}

func (e *Engine) childOutcome(ctx, bounded context.Context, err error, said string) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("compile a module: %w", ctx.Err())
	case bounded.Err() != nil:
		return fmt.Errorf("compile in a child process: nothing after %v, the machine may have no time for it: %w", e.compileWait, bounded.Err())
	case !errors.As(err, &exit):
		return fmt.Errorf("compile in a child process: %w", err)
	case exit.ExitCode() == childRefused:
		return refusedByChild(said)
	case exit.ExitCode() == childFailed:
		return fmt.Errorf("compile in a child process: %s", said)
	}
	e.logger.Warn("the compiler's process died", "state", exit.String(), "said", said)
	return refuse("code", "the compiler crashed, or needed too much time or memory; split large functions and build it again")
}

// refusedByChild reads what a child says of a module.
func refusedByChild(said string) error {
	refused := &AdmissionError{}
	if err := json.Unmarshal([]byte(said), refused); err != nil || refused.Reason == "" {
		return refuse("code", "%s", shorten(said))
	}
	return refuse(shorten(refused.Where), "%s", shorten(refused.Reason))
}

// cappedBuffer keeps the first bytes written to it.
type cappedBuffer struct{ strings.Builder }

func (b *cappedBuffer) Write(data []byte) (int, error) {
	b.Builder.Write(data[:min(len(data), childTextBytes-b.Len())])
	return len(data), nil
}
