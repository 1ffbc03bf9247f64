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
	// Limits bound a module and its calls. The zero value selects
	// abi.DefaultLimits. Limits.MemoryBytes bounds each instance's linear memory.
	Limits abi.Limits
	// MemoryBytes bounds the memory of all instances together, as
	// Usage.ChargedBytes counts it; 0 means no bound. An instance is charged when
	// it is created and when its memory grows. In addition, Limits.MemoryBytes of
	// address space are reserved for each instance, which costs nothing.
	MemoryBytes int64
	// CacheDir is the directory that keeps compiled modules across restarts. It
	// is created with mode 0700: the node runs the code in these files, so
	// nobody else may write there. Without CacheDir every module is compiled
	// again each time the node starts (1.3 s of CPU for a Go guest, against 50
	// ms from the cache). Only one engine at a time may use it.
	CacheDir string
	// CacheKey is the key of the HMACs that seal the files of CacheDir. A file
	// that was not sealed with this key is not used. With an empty key anybody
	// could produce valid files.
	CacheKey []byte
	// cacheIsVerified is set in a child process, because the engine that started
	// it has already verified CacheDir.
	cacheIsVerified bool
	// CompileCommand, if set, is the program and the arguments of a child
	// process that compiles and tries each module first; the program must call
	// CompileChild. It requires CacheDir. Without it, modules are compiled in
	// this process, where a malicious module can occupy a core for minutes, so
	// leave CompileCommand unset only if all modules are trusted.
	CompileCommand []string
	// CompileTimeout bounds the CPU time of the child, for the compilation and the
	// trial together; the default is 25 s. A Go guest takes 1 to 2 s. If the child
	// takes more than four times as long by the wall clock, the compilation fails
	// too, but the module is not blamed.
	CompileTimeout time.Duration
	// Interpreter runs guests without compiling them. It is 10 to 100 times slower
	// and has a smaller stack. It exists for comparing results with compiled code.
	Interpreter bool
	// TellFaults adds the output that a guest wrote before it failed, such as
	// the text of a panic, to the text of the fault, which callers see.
	TellFaults bool
	// Logger receives the log lines of guests; nil discards them.
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

// validate returns all errors of the options, joined.
func (o *Options) validate() error {
	var faults []error
	positive := func(name string, value int) {
		if value <= 0 {
			faults = append(faults, fmt.Errorf("limit %s must be positive, got %d", name, value))
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
		faults = append(faults, fmt.Errorf("limit MemoryBytes must be a multiple of %[2]d up to %[3]d, got %[1]d",
			l.MemoryBytes, wasm.PageBytes, l.MemoryBytesMax))
	}
	if int64(l.MemoryBytesMax) > 1<<32 {
		faults = append(faults, fmt.Errorf("limit MemoryBytesMax must be at most %[2]d, the address space of a 32-bit guest, got %[1]d", l.MemoryBytesMax, int64(1)<<32))
	}
	if o.MemoryBytes < 0 {
		faults = append(faults, fmt.Errorf("MemoryBytes must not be negative, got %d", o.MemoryBytes))
	}
	if len(o.CompileCommand) > 0 && (o.CacheDir == "" || o.Interpreter) {
		faults = append(faults, errors.New("CompileCommand requires CacheDir and the compiler engine"))
	}
	if o.CompileTimeout < time.Second {
		faults = append(faults, fmt.Errorf("CompileTimeout must be at least 1s, got %v", o.CompileTimeout))
	}
	return errors.Join(faults...)
}
