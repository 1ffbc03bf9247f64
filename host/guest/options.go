package guest

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

// Options configure an Engine.
type Options struct {
	// Limits a module and its calls are held to; abi.DefaultLimits when zero.
	// Limits.MemoryBytes bounds each instance's linear memory.
	Limits abi.Limits
	// MemoryBytes bounds what all instances hold together, as Usage.ChargedBytes
	// counts it; 0 is no bound. It is charged when an instance is made and when
	// its memory grows. Address space is reserved beyond it, at no cost: Limits.MemoryBytes
	// an instance.
	MemoryBytes int64
	// CacheDir keeps compiled modules across restarts; it is made with mode
	// 0700. Its files are code the node will run: nobody else may write there.
	// Without it every start compiles each module again (1.3 s of CPU for a Go
	// guest, against 50 ms). One engine at a time may have it.
	CacheDir string
	// CacheKey seals the files of CacheDir: what was written without it is not
	// used. Empty: anybody could have written them.
	CacheKey []byte
	// cacheIsVerified is for a child: the engine that started it has CacheDir.
	cacheIsVerified bool
	// CompileCommand, when set, is the program and arguments of a child process
	// that compiles and tries each module first; it must call CompileChild. It needs
	// CacheDir. Without it a module is compiled in this process, where a module
	// made to can hold a core for minutes: right for modules one trusts.
	CompileCommand []string
	// CompileTimeout bounds the child's CPU time; default 25 s. A Go guest takes
	// 1 to 2 s. A module has its trial in the same time. Four times as long by
	// the clock is an error too, but none of the module's.
	CompileTimeout time.Duration
	// Interpreter runs guests without compiling them, some 10 to 100 times
	// slower and with less stack. It is there to compare results with.
	Interpreter bool
	// TellFaults puts what a guest wrote before it failed, such as the text of a
	// panic, into the text of the fault, which callers are told.
	TellFaults bool
	// Logger gets what guests log; discarded when nil.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Limits == (abi.Limits{}) {
		o.Limits = abi.DefaultLimits()
	}
	if o.CompileTimeout == 0 {
		o.CompileTimeout = compileTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// validate joins all faults of the options.
func (o *Options) validate() error {
	var faults []error
	positive := func(name string, value int) {
		if value <= 0 {
			faults = append(faults, fmt.Errorf("limit %s is %d, must be positive", name, value))
		}
	}
	l := o.Limits
	positive("ModuleBytes", l.ModuleBytes)
	positive("FunctionBodyBytes", l.FunctionBodyBytes)
	positive("FunctionLocals", l.FunctionLocals)
	positive("TableElements", l.TableElements)
	positive("RequestBytes", l.RequestBytes)
	positive("BatchBytes", l.BatchBytes)
	positive("OutputBytes", l.OutputBytes)
	positive("SnapshotBytes", l.SnapshotBytes)
	positive("ManifestBytes", l.ManifestBytes)
	positive("CommandFuel", l.CommandFuel)
	positive("QueryFuel", l.QueryFuel)
	positive("EventFuel", l.EventFuel)
	positive("LoadFuel", l.LoadFuel)
	positive("StartFuel", l.StartFuel)
	if l.MemoryBytes < wasm.PageBytes || l.MemoryBytes%wasm.PageBytes != 0 || l.MemoryBytes > l.MemoryBytesMax {
		faults = append(faults, fmt.Errorf("limit MemoryBytes is %d, must be a multiple of %d up to %d",
			l.MemoryBytes, wasm.PageBytes, l.MemoryBytesMax))
	}
	if int64(l.MemoryBytesMax) > 1<<32 {
		faults = append(faults, fmt.Errorf("limit MemoryBytesMax is %d, a 32-bit guest has at most %d", l.MemoryBytesMax, int64(1)<<32))
	}
	if o.MemoryBytes < 0 {
		faults = append(faults, fmt.Errorf("MemoryBytes is %d, must not be negative", o.MemoryBytes))
	}
	if len(o.CompileCommand) > 0 && (o.CacheDir == "" || o.Interpreter) {
		faults = append(faults, errors.New("CompileCommand needs CacheDir and the compiler"))
	}
	if o.CompileTimeout < time.Second {
		faults = append(faults, fmt.Errorf("CompileTimeout is %v, must be at least 1s", o.CompileTimeout))
	}
	return errors.Join(faults...)
}
