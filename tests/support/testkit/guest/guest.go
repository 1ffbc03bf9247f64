// Package guest assembles Wasm modules byte by byte. These are guests that
// conform to the ABI except in one place, which no compiler would produce. It
// never runs them and starts no goroutine.
package guest

import (
	"encoding/binary"
	"encoding/json"
	"slices"

	"github.com/hostd/hostd/abi"
)

// Module is a guest with two entity types. On entities of the type Good, each
// command emits the event "happened" and replies "done". On entities of the
// type Bad, the code in Handle runs. If all other fields are zero, the guest
// conforms to the ABI.
type Module struct {
	Good, Bad string // names of the entity types; Good may be empty

	Handle []byte  // code that leaves an i64; if nil, a command of Bad succeeds
	Apply  []byte  // code that leaves an i32
	State  []byte  // code that leaves an i64: the span of the snapshot
	Upcast []byte  // code that leaves an i64: the span of an event; if nil, it is not exported
	Frames []byte  // output frames, copied to memory at FramesAt
	ABI    int32   // result of hostd_abi; 0 means 1
	Omit   string  // name of an export to omit
	Import *Import // function of type () -> () to import
	Start  bool    // add a start section

	MemoryPages uint32 // memory size; 0 means 2
	Manifest    string // replaces the manifest with the two types
}

// Import names an imported function.
type Import struct{ Module, Name string }

// FramesAt is the address of Frames.
const FramesAt = 40 << 10

// MemoryBytes is the memory size of a Module with MemoryPages 0.
const MemoryBytes = 2 * pageBytes

// Memory layout of a guest.
const (
	pageBytes  = 64 << 10
	typesAt    = 0       // type number of each handle, one byte each
	manifestAt = 8 << 10 // the length is a constant in the module
	goodAt     = 32 << 10
	bufferAt   = pageBytes // to the end of memory
)

// Unreachable is code that traps.
var Unreachable = []byte{0x00}

// Span returns code that leaves the span of length bytes at address.
func Span(address, length uint32) []byte { return i64Const(int64(abi.PackSpan(address, length))) }

// Count returns code that counts down from n and then leaves an empty span.
func Count(n int32) []byte {
	return slices.Concat(
		i32Const(n), []byte{0x21, 0x02}, // local 2 = n
		[]byte{0x03, 0x40},                                                 // loop
		[]byte{0x20, 0x02}, i32Const(1), []byte{0x6b, 0x22, 0x02, 0x0d, 0}, // branch back while --local 2
		[]byte{0x0b}, i64Const(0))
}

// Happened returns the output frames of a successful command.
func Happened() []byte {
	event := append(binary.LittleEndian.AppendUint16(nil, uint16(len("happened"))), "happened"...)
	return abi.AppendFrame(abi.AppendFrame(nil, abi.OutEvent, append(event, "it"...)), abi.OutReply, "done")
}

// Build returns the encoded module.
func (m Module) Build() []byte {
	manifest, good := m.manifest(), Happened()
	handle := Span(goodAt, uint32(len(good)))
	if m.Handle != nil {
		// Bad is the last type. Its number is 1, or 0 if there is no Good.
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
	functions = append(functions, function{}) // called by the start section
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
