package engine

import (
	"bytes"
	"context"
	"fmt"

	"github.com/hostd/hostd/abi"
	"github.com/tetratelabs/wazero"
)

// compiledModule is what the runtime made of a prepared module, and the data
// that it was not given.
type compiledModule struct {
	wazero.CompiledModule
	data []segment
}

// compilePrepared compiles a prepared module without its data.
func (e *Engine) compilePrepared(ctx context.Context, prepared []byte) (*compiledModule, error) {
	code, data := cutData(prepared)
	compiled, err := e.compileContained(ctx, code)
	if err != nil {
		return nil, err
	}
	return &compiledModule{compiled, data}, nil
}

// cutData parts a prepared module from the data it has its memory begin with,
// which the engine writes itself: an instance that begins with the image of
// another is made of the same code and has none of it written. The data is a
// copy. A module whose data is also named by instructions, or whose place is
// not known before it is instantiated, keeps it.
func cutData(prepared []byte) (code []byte, data []segment) {
	c := &cursor{data: prepared, pos: len(wasmMagic) + len(wasmVersion), end: len(prepared)}
	for c.ok() && c.left() > 0 {
		began := c.pos
		id := c.byte("a section id")
		payload := c.skip(c.u32("a section's size"), "a section")
		switch {
		case !c.ok() || id == sectionDataCount:
			return prepared, nil
		case id == sectionData:
			segments, ok := activeSegments(bytes.Clone(prepared[payload:c.pos]))
			if !ok {
				return prepared, nil
			}
			return append(prepared[:began:began], prepared[c.pos:]...), segments
		}
	}
	return prepared, nil
}

// writeData has memory begin with the module's data, as the runtime would.
func (g *Instance) writeData() error {
	memory := g.guest.Memory()
	for i, s := range g.module.compiled.data {
		if !memory.Write(s.offset, s.data) {
			return faultOf(abi.ExportInitialize, fmt.Errorf("data[%d]: out of bounds memory access", i))
		}
	}
	return nil
}
