package guest

import (
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/tetratelabs/wazero/api"
)

// An image is the state of a new instance after _initialize: its memory, in an
// anonymous file that lives only in memory, and its globals. All instances
// after the first begin with the image instead of running _initialize again.
// The kernel maps the file into the memory of each instance and copies a page
// when the instance writes to it, so that instances share the pages they have
// not changed.
//
// An image equals the result of _initialize exactly, because that depends on
// the module alone: the clock and the random numbers it may ask for are
// constants. A module has no image if some of its state cannot be copied:
// tables that its code writes to, segments that its code can drop, and
// globals of reference or vector types. A module has no image either if a
// memory.grow failed in _initialize, because it could succeed under a
// different limit.
type image struct {
	file    imageFile
	length  int // length of the memory in bytes
	globals []uint64
	fuel    int64 // fuel spent by _initialize
}

const (
	// A module gets no image if a new instance spends less fuel and fills less
	// memory than these, because mapping the image would take as long.
	imageLeastFuel  = 50_000
	imageLeastBytes = 256 << 10
	// imageMostBytes bounds the part of an image up to its last nonzero byte. The
	// kernel needs 2.5 us to copy a page, and nothing can interrupt that.
	imageMostBytes = 4 << 20
)

// takeImage creates the module's image from an instance that has just started.
// If that is not possible, each instance runs _initialize.
func (m *Module) takeImage(g *Instance) {
	length := g.memory.length
	view, ok := g.guest.Memory().Read(0, uint32(length))
	if !m.restorable || !ok || g.memory.refused {
		return
	}
	content := withoutZeros(view)
	if g.meter.used < imageLeastFuel && len(content) < imageLeastBytes || len(content) > imageMostBytes {
		return
	}
	globals := make([]uint64, len(m.mutable))
	for i, index := range m.mutable {
		global, ok := g.guest.ExportedGlobal(wasm.GlobalName(index)).(api.MutableGlobal)
		if !ok {
			return
		}
		globals[i] = global.Get()
	}
	file, err := newImageFile(content)
	if err != nil {
		m.logger.Debug("no memory image; each instance runs its initialization", "error", err)
		return
	}
	m.image = &image{file: file, length: length, globals: globals, fuel: g.meter.used}
}

// withoutZeros cuts off the trailing pages that contain only zeros.
func withoutZeros(memory []byte) []byte {
	end := len(memory)
	for end > 0 && memory[end-1] == 0 {
		end--
	}
	end = (end + machinePage - 1) / machinePage * machinePage
	return memory[:min(end, len(memory))]
}

// imageFor returns the initial image for an instance with the given options;
// nil means none.
func (m *Module) imageFor(opts *InstanceOptions) *image {
	switch {
	case m.image == nil:
		return nil
	case opts.pureClock != fixedInstant || opts.pureSeed != fixedSeed:
		return nil // _initialize may have read the clock or the random stream
	case opts.MemoryBytes > 0 && int64(m.image.length) > opts.MemoryBytes:
		return nil
	}
	return m.image
}

// restore sets the globals. The memory already holds the image.
func (g *Instance) restore(from *image) {
	for i, index := range g.module.mutable {
		g.guest.ExportedGlobal(wasm.GlobalName(index)).(api.MutableGlobal).Set(from.globals[i])
	}
	g.meter.used = from.fuel
}
