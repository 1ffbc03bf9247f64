package engine

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/hostd/hostd/abi"
)

// Options configure an Engine.
type Options struct {
	// Limits a module and its calls are held to; abi.DefaultLimits when zero.
	// Limits.MemoryBytes bounds each instance's linear memory.
	Limits abi.Limits
	// MemoryBytes bounds the linear memory of all instances together; 0 is no
	// bound. Address space is reserved beyond it, at no cost: Limits.MemoryBytes
	// an instance.
	MemoryBytes int64
	// CacheDir keeps compiled modules across restarts; it is made with mode
	// 0700. Its files are code the node will run: nobody else may write there.
	// Without it every start compiles each module again (1.3 s of CPU for a Go
	// guest, against 50 ms).
	CacheDir string
	// Interpreter runs guests without compiling them, some 10 to 100 times
	// slower and with less stack. It is there to compare results with.
	Interpreter bool
	// Logger gets what guests log; discarded when nil.
	Logger *slog.Logger
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
	if l.MemoryBytes < pageBytes || l.MemoryBytes%pageBytes != 0 || l.MemoryBytes > l.MemoryBytesMax {
		faults = append(faults, fmt.Errorf("limit MemoryBytes is %d, must be a multiple of %d up to %d",
			l.MemoryBytes, pageBytes, l.MemoryBytesMax))
	}
	if int64(l.MemoryBytesMax) > 1<<32 {
		faults = append(faults, fmt.Errorf("limit MemoryBytesMax is %d, a 32-bit guest has at most %d", l.MemoryBytesMax, int64(1)<<32))
	}
	if o.MemoryBytes < 0 {
		faults = append(faults, fmt.Errorf("MemoryBytes is %d, must not be negative", o.MemoryBytes))
	}
	return errors.Join(faults...)
}
