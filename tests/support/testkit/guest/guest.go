// Package guest puts Wasm modules together byte by byte: guests that keep the
// contract in all but one place, which no compiler would make. It never runs
// them and starts no goroutine.
package guest

import (
	"encoding/binary"
	"encoding/json"
	"slices"

	"github.com/hostd/hostd/abi"
)

// Module is a guest with two entity types: on entities of the type Good each
// command emits the event "happened" and replies "done", on those of the type
// Bad the code of Handle runs. The zero value of a field keeps the contract.
type Module struct {
	Good, Bad string // names of the types; Good may be empty

	Handle []byte  // code that leaves an i64; a command of Bad replies when nil
	Apply  []byte  // code that leaves an i32
	State  []byte  // code that leaves an i64: the span of the snapshot
	Upcast []byte  // code that leaves an i64: the span of an event; the export is left out when nil
	Frames []byte  // placed in memory at FramesAt
	ABI    int32   // what hostd_abi returns; 1 when 0
	Omit   string  // an export that is left out
	Import *Import // of a function () -> ()
	Start  bool    // has a start section

	MemoryPages uint32 // 2 when 0
	Manifest    string // replaces the one that describes the two types
}

// Import names a function of the host.
type Import struct{ Module, Name string }

// FramesAt is the address of Frames.
const FramesAt = 40 << 10

// MemoryBytes is the memory of a Module that leaves MemoryPages alone.
const MemoryBytes = 2 * pageBytes

// Where a guest keeps things.
const (
	pageBytes  = 64 << 10
	typesAt    = 0       // the type number of each handle, a byte each
	manifestAt = 8 << 10 // its length is known to the module
	goodAt     = 32 << 10
	bufferAt   = pageBytes // to the end of memory
)

// Unreachable is code that traps.
var Unreachable = []byte{0x00}

// Span is code that leaves the span of length bytes at address.
func Span(address, length uint32) []byte { return i64Const(int64(abi.PackSpan(address, length))) }

// Count is code that counts down from n, and then leaves the empty span.
func Count(n int32) []byte {
	return slices.Concat(
		i32Const(n), []byte{0x21, 0x02}, // local 2 = n
		[]byte{0x03, 0x40},                                                 // loop
		[]byte{0x20, 0x02}, i32Const(1), []byte{0x6b, 0x22, 0x02, 0x0d, 0}, // branch back while --local 2
		[]byte{0x0b}, i64Const(0))
}

// Happened are the frames of a command that works.
func Happened() []byte {
	event := append(binary.LittleEndian.AppendUint16(nil, uint16(len("happened"))), "happened"...)
	return abi.AppendFrame(abi.AppendFrame(nil, abi.OutEvent, append(event, "it"...)), abi.OutReply, "done")
}

// Build returns the module.
func (m Module) Build() []byte {
	manifest, good := m.manifest(), Happened()
	handle := Span(goodAt, uint32(len(good)))
	if m.Handle != nil {
		// Bad is the last type: number 1, or 0 when there is no Good.
		typeOf := slices.Concat([]byte{0x20, 0x00, 0xa7}, []byte{0x2d, 0x00, 0x00}) // load8_u(handle)
		condition := typeOf
		if m.Good == "" {
			condition = i32Const(1)
		}
		handle = slices.Concat(condition, []byte{0x04, 0x7e}, m.Handle, []byte{0x05}, handle, []byte{0x0b})
	}
	apply := i32Const(0)
	if m.Apply != nil {
		apply = m.Apply
	}
	state := i64Const(0)
	if m.State != nil {
		state = m.State
	}
	version := m.ABI
	if version == 0 {
		version = 1
	}
	load := slices.Concat([]byte{0x20, 0x01, 0xa7, 0x20, 0x00, 0x3a, 0x00, 0x00}, i32Const(0)) // store8(handle, type)
	functions := []function{
		{abi.ExportABI, "", "\x7f", i32Const(version)},
		{abi.ExportDescribe, "", "\x7e", Span(manifestAt, uint32(len(manifest)))},
		{abi.ExportBuffer, "\x7f", "\x7f", i32Const(bufferAt)},
		{abi.ExportLoad, "\x7f\x7e\x7f", "\x7f", load},
		{abi.ExportApply, "\x7e\x7f", "\x7f", apply},
		{abi.ExportHandle, "\x7e\x7f", "\x7e", handle},
		{abi.ExportQuery, "\x7e\x7f", "\x7e", i64Const(0)},
		{abi.ExportSnapshot, "\x7e", "\x7e", state},
		{abi.ExportDrop, "\x7e", "", nil},
	}
	if m.Upcast != nil {
		functions = append(functions, function{abi.ExportUpcast, "\x7f\x7f", "\x7e", m.Upcast})
	}
	functions = append(functions, function{}) // what a start section names
	return m.assemble(functions, [][]byte{data(manifestAt, []byte(manifest)), data(goodAt, good), data(FramesAt, m.Frames)})
}

func (m Module) manifest() string {
	if m.Manifest != "" {
		return m.Manifest
	}
	type entityType struct {
		Name     string `json:"name"`
		Kind     string `json:"kind"`
		Encoding string `json:"encoding"`
	}
	var types []entityType
	for _, name := range []string{m.Good, m.Bad} {
		if name != "" {
			types = append(types, entityType{name, "event-sourced", "bytes"})
		}
	}
	text, err := json.Marshal(map[string]any{"abi": 1, "name": "assembled", "version": "1.0.0", "entityTypes": types})
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(text)
}
