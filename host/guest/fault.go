package guest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

// Sentinels of this package.
var (
	// ErrInstanceDead: the instance faulted or was closed. Close it, make
	// another and load its entities there.
	ErrInstanceDead = errors.New("guest instance is dead")
	// ErrClosed: the engine or module was closed.
	ErrClosed = errors.New("closed")
	// ErrInUse: instances or modules of it are still open; close them first.
	ErrInUse = errors.New("still in use")
	// ErrNoMemory: the node's budget of guest memory is spent, or the kernel
	// refused. A retry is right once other instances are closed.
	ErrNoMemory = errors.New("no memory for a guest instance")
	// ErrMemoryLimit: the module starts with more memory than its instance may
	// have. A retry is of no use.
	ErrMemoryLimit = errors.New("module needs more memory than its limit")
	// ErrInputTooLarge: the input is over its limit and the guest was not
	// called. The instance lives. A retry is of no use.
	ErrInputTooLarge = errors.New("input of a guest call is over its limit")
	// ErrDeadline: the call was ended at its deadline. The instance is dead;
	// the guest is not at fault.
	ErrDeadline = errors.New("guest call ended at its deadline")
	// ErrInterrupted: Interrupt ended the call. The instance is dead; the guest
	// is not at fault.
	ErrInterrupted = errors.New("guest call was interrupted")
)

// FaultKind says how a guest broke the contract.
type FaultKind uint8

// Kinds of faults.
const (
	FaultTrap      FaultKind = iota // unreachable, out of bounds, proc_exit, stack overflow, ...
	FaultSpan                       // a returned span or buffer lies outside memory
	FaultStatus                     // a status the contract does not have, or a failed apply
	FaultOutput                     // an output over its limit; the instance lives
	FaultFrames                     // an output that is no frames of the contract
	FaultNoBuffer                   // hostd_buffer refused
	FaultForbidden                  // a host function where it may not be called, or too often
	FaultFuel                       // the call's budget of fuel is spent
	FaultStack                      // calls within calls, too deep
	FaultKinds                      // the number of kinds
)

var faultNames = [...]string{"trap", "span outside memory", "bad status", "output over limit", "bad frames",
	"no input buffer", "forbidden call", "fuel spent", "stack spent"}

func (k FaultKind) String() string { return faultNames[k] }

// Fault is a guest's breach of the contract in one call. Except after
// FaultOutput, the instance is dead and must be closed; the entities in it are
// as they were before the call, wherever they are next loaded. Its text is
// public: it holds function names of the module, nothing of the host, and what
// the guest wrote only where Options.TellFaults says so.
type Fault struct {
	Kind    FaultKind
	Export  string // the function that was called
	Message string
	Trace   []string // of the guest's functions, innermost first; for logs

	words string // what LastWords tells
	told  bool   // the text has it
}

// Is reports that the fault is abi.ErrOverLimit: the guest has kept the
// contract, and what it was asked to do makes too much.
func (f *Fault) Is(target error) bool { return f.Kind == FaultOutput && target == abi.ErrOverLimit }

func (f *Fault) Error() string {
	text := f.Export + ": " + f.Kind.String() + ": " + f.Message
	if f.told && f.words != "" {
		text += "; the guest wrote: " + f.words
	}
	return text
}

// forbidden is what a host function panics with to end the guest's call.
type forbidden string

func (f forbidden) Error() string { return string(f) }

// exited is proc_exit's way to end the call.
type exited uint32

func (e exited) Error() string { return fmt.Sprintf("the guest exited with code %d", uint32(e)) }

// faultOf turns what a call into the runtime failed with into a *Fault, or
// into one of the sentinels that are no fault of the guest.
func faultOf(export string, err error) error {
	for _, sentinel := range []error{ErrDeadline, ErrInterrupted} {
		if errors.Is(err, sentinel) {
			return sentinel
		}
	}
	f := &Fault{Kind: FaultTrap, Export: export}
	var stop forbidden
	if errors.As(err, &stop) {
		f.Kind = FaultForbidden
	}
	var spent exhausted
	if errors.As(err, &spent) {
		f.Kind = spent.kind
	}
	f.Message, f.Trace = publicText(err)
	if f.Message == runtimeStackOverflow {
		f.Kind = FaultStack
	}
	return f
}

// runtimeStackOverflow is what the runtime says at its own bound of the stack,
// which the interpreter comes to first.
const runtimeStackOverflow = "stack overflow"

const (
	maxTraceLines    = 16
	traceHeading     = "wasm stack trace:"
	hostTraceHeading = "Go runtime stack trace:"
)

// publicText keeps of a runtime's error its first line and the guest's
// frames. What follows in it can be a stack of the host.
func publicText(err error) (message string, trace []string) {
	text := err.Error()
	if at := strings.Index(text, hostTraceHeading); at >= 0 {
		text = text[:at]
	}
	text, frames, traced := strings.Cut(text, traceHeading)
	message, _, _ = strings.Cut(text, "\n")
	message = strings.TrimSuffix(strings.TrimSpace(message), " (recovered by wazero)")
	message = strings.TrimPrefix(message, "wasm error: ")
	if !traced {
		return wasm.Shorten(message), nil
	}
	for line := range strings.Lines(frames) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, wasm.ImportModule+".") {
			trace = append(trace, wasm.Shorten(line))
		}
		if len(trace) == maxTraceLines {
			break
		}
	}
	return wasm.Shorten(message), trace
}
