package guest

import (
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/tetratelabs/wazero/api"
)

// An image is the state of a new instance of a module whose _initialize has
// run: its memory, in a file that no disk has, and its globals. The instances
// after the first begin with it instead of running _initialize again: the
// kernel maps the file into the memory of each and copies a page when it is
// written to, so that they share what none of them has changed.
//
// It is exactly what _initialize would make, as that is a function of the
// module alone: the clock and the random numbers it may ask for are constants.
// What cannot be copied keeps a module from having an image: tables that its
// code writes to, segments that its code can drop, and globals of references or
// vectors. So does a memory.grow that was refused, which another limit would
// have allowed.
type image struct {
	file    imageFile
	length  int // of the memory
	globals []uint64
	fuel    int64 // that _initialize spent
}

const (
	// Below both of these an image saves nothing: mapping it takes as long.
	imageLeastFuel  = 50_000
	imageLeastBytes = 256 << 10
	// imageMostBytes bounds an image up to its last byte that is not zero. A
	// page of it takes the kernel 2.5 us to copy, which nothing can stop.
	imageMostBytes = 4 << 20
)

// takeImage makes the module's image of an instance that has just started.
// Where there is none to be had instances do without.
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
		m.logger.Debug("instances will be initialized one by one", "error", err)
		return
	}
	m.image = &image{file: file, length: length, globals: globals, fuel: g.meter.used}
}

// withoutZeros leaves out the pages at the end that are zero.
func withoutZeros(memory []byte) []byte {
	end := len(memory)
	for end > 0 && memory[end-1] == 0 {
		end--
	}
	end = (end + machinePage - 1) / machinePage * machinePage
	return memory[:min(end, len(memory))]
}

// imageFor is the image that an instance with the options begins with, nil for
// none.
func (m *Module) imageFor(opts *InstanceOptions) *image {
	switch {
	case m.image == nil:
		return nil
	case opts.pureClock != fixedInstant || opts.pureSeed != fixedSeed:
		return nil // _initialize may have asked
	case opts.MemoryBytes > 0 && int64(m.image.length) > opts.MemoryBytes:
		return nil
	}
	return m.image
}

// restore sets the globals. The memory is there already.
func (g *Instance) restore(from *image) {
	for i, index := range g.module.mutable {
		g.guest.ExportedGlobal(wasm.GlobalName(index)).(api.MutableGlobal).Set(from.globals[i])
	}
	g.meter.used = from.fuel
}
