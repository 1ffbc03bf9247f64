//go:build wasip1

package hostd

import (
	"syscall"
	"unsafe"

	"github.com/hostd/hostd/abi"
)

// input is the buffer that the host writes into. It lives as long as the
// instance and grows to the largest request.
var input []byte

const (
	minInputBytes = 4 << 10
	maxInputBytes = 4 << 20
)

//go:wasmimport hostd log
func hostLog(level int32, line unsafe.Pointer, length int32)

func attach(g *Guest) {
	g.Log = func(level abi.LogLevel, line string) {
		hostLog(int32(level), unsafe.Pointer(unsafe.StringData(line)), int32(len(line)))
	}
}

//go:wasmexport hostd_abi
func exportABI() int32 { return abi.Version }

//go:wasmexport hostd_describe
func exportDescribe() int64 { return span(module().Describe()) }

//go:wasmexport hostd_buffer
func exportBuffer(size int32) int32 {
	if size < 0 || size > maxInputBytes {
		return 0
	}
	if int(size) > len(input) {
		input = make([]byte, max(minInputBytes, int(size), min(2*len(input), maxInputBytes)))
	}
	if input == nil {
		input = make([]byte, minInputBytes)
	}
	return int32(uintptr(unsafe.Pointer(unsafe.SliceData(input))))
}

//go:wasmexport hostd_load
func exportLoad(typ int32, entity int64, length int32) int32 {
	return int32(module().Load(typ, entity, input[:length]))
}

//go:wasmexport hostd_apply
func exportApply(entity int64, length int32) int32 {
	return module().Apply(entity, input[:length])
}

//go:wasmexport hostd_handle
func exportHandle(entity int64, length int32) int64 {
	return span(module().Handle(entity, input[:length]))
}

//go:wasmexport hostd_query
func exportQuery(entity int64, length int32) int64 {
	return span(module().Query(entity, input[:length]))
}

//go:wasmexport hostd_snapshot
func exportSnapshot(entity int64) int64 { return span(module().Snapshot(entity)) }

//go:wasmexport hostd_upcast
func exportUpcast(typ int32, length int32) int64 { return span(module().Upcast(typ, input[:length])) }

//go:wasmexport hostd_drop
func exportDrop(entity int64) { module().Drop(entity) }

// stop ends the instance, which is a fault, after it has written the text.
func stop(text string) {
	println(text)
	syscall.Exit(2)
}

// span returns the address and length of b. The address stays valid, because
// the collector does not move memory and the guest holds b until its next call.
func span(b []byte) int64 {
	if len(b) == 0 {
		return 0
	}
	address := uint32(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	return int64(abi.PackSpan(address, uint32(len(b))))
}

func module() *Guest {
	if served == nil {
		panic("hostd: the module never called Serve")
	}
	return served
}
