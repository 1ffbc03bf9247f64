package guest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

// Errors of this package.
var (
	// ErrInstanceDead: the instance faulted or was closed. Close it, create
	// another instance and load its entities there.
	ErrInstanceDead = errors.New("guest instance is dead")
	// ErrClosed: the engine or the module was closed.
	ErrClosed = errors.New("closed")
	// errInUse: modules or instances are still open; close them first.
	errInUse = errors.New("instances are still in use")
	// errNoMemory: a budget of guest memory is exhausted, or the kernel refused.
	// Retry after other instances have been closed.
	errNoMemory = errors.New("no memory for a guest instance")
	// errMemoryLimit: the module starts with more memory than its instance may
	// have. A retry does not help.
	errMemoryLimit = errors.New("the module needs more memory than its limit")
	// errInputTooLarge: the input exceeds its limit, and the guest was not called.
	// The instance stays usable. A retry does not help.
	errInputTooLarge = errors.New("the input of a guest call exceeds its limit")
	// ErrDeadline: the call was ended at its deadline. The instance is dead, but
	// the guest is not at fault.
	ErrDeadline = errors.New("guest call exceeded its deadline")
	// ErrInterrupted: Interrupt ended the call. The instance is dead, but the
	// guest is not at fault.
	ErrInterrupted = errors.New("guest call was interrupted")
)

// FaultKind is the way in which a guest violated the contract.
type FaultKind uint8

// Kinds of faults.
const (
	FaultTrap      FaultKind = iota // the guest trapped: unreachable, out of bounds, proc_exit and others
	FaultSpan                       // a returned span or buffer lies outside memory
	FaultStatus                     // an unknown status, or a failed apply
	FaultOutput                     // an output exceeds its limit; the instance stays usable
	FaultFrames                     // an output does not consist of valid frames
	FaultNoBuffer                   // hostd_buffer returned no buffer
	FaultForbidden                  // a host function was called when that is forbidden, or too often
	FaultFuel                       // the call's fuel budget is exhausted
	FaultStack                      // the call stack is too deep
	FaultKinds                      // number of the kinds above
)

var faultNames = [...]string{"trap", "span outside memory", "bad status", "output over limit", "bad frames",
	"no input buffer", "forbidden call", "fuel spent", "stack spent"}

func (k FaultKind) String() string { return faultNames[k] }

// Fault is a violation of the contract by the guest in one call. Except after
// FaultOutput, the instance is dead and must be closed. The durable state of
// its entities is not affected: they can be loaded into another instance. The
// error text is public: it contains names of the module's functions but nothing
// about the host, and the guest's output only if Options.TellFaults is set.
type Fault struct {
	Kind    FaultKind
	Export  string // the called function
	Message string
	Trace   []string // stack of guest functions, innermost first; for logs

	words   string // the result of LastWords
	exposed bool   // the text of the error includes words
}

// Is reports whether a FaultOutput is abi.ErrOverLimit: the guest kept the
// contract, but the result of the request is too large.
func (f *Fault) Is(target error) bool { return f.Kind == FaultOutput && target == abi.ErrOverLimit }

func (f *Fault) Error() string {
	text := f.Export + ": " + f.Kind.String() + ": " + f.Message
	if f.exposed && f.words != "" {
		text += "; the guest wrote: " + f.words
	}
	return text
}

// forbidden is the value that a host function panics with to end the guest's
// call.
type forbidden string

func (f forbidden) Error() string { return string(f) }

// exited is the value that proc_exit panics with to end the call.
type exited uint32

func (e exited) Error() string { return fmt.Sprintf("the guest exited with code %d", uint32(e)) }

// faultOf converts an error of a call into the runtime into a *Fault, or into
// one of the sentinels that are not the guest's fault.
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

// runtimeStackOverflow is the runtime's message at its own stack limit, which
// the interpreter reaches before the limit of metering.
const runtimeStackOverflow = "stack overflow"

const (
	maxTraceLines    = 16
	traceHeading     = "wasm stack trace:"
	hostTraceHeading = "Go runtime stack trace:"
)

// publicText extracts the first line and the guest's stack frames from an error
// of the runtime. The rest can contain a stack trace of the host.
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
