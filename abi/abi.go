// Package abi is the vocabulary of the guest contract, version 1: the names
// that a module exports and may import, the numbers of frame kinds and
// statuses, the encoding of frames, and the limits of a guest's output.
//
// It never runs a guest, never uses a Wasm runtime and never keeps a reference
// to its arguments: decoders return sub-slices of their input. It starts no
// goroutine. It imports little of the standard library on purpose, because it
// is linked into guests, where every package adds size and start-up time. The
// manifest, which needs a JSON parser, is therefore in abi/manifest.
//
// ABI.md in this directory describes the contract in words; if the two differ,
// the golden vectors in testdata decide.
package abi

// Version is the ABI version that hostd_abi returns.
const Version = 1

// Names of the exports of a module. All are required except ExportInitialize.
const (
	ExportMemory     = "memory"
	ExportInitialize = "_initialize"    // ()
	ExportABI        = "hostd_abi"      // () -> i32
	ExportDescribe   = "hostd_describe" // () -> i64 span
	ExportBuffer     = "hostd_buffer"   // (size i32) -> i32
	ExportLoad       = "hostd_load"     // (type i32, entity i64, len i32) -> i32
	ExportApply      = "hostd_apply"    // (entity i64, len i32) -> i32
	ExportHandle     = "hostd_handle"   // (entity i64, len i32) -> i64 span
	ExportQuery      = "hostd_query"    // (entity i64, len i32) -> i64 span
	ExportSnapshot   = "hostd_snapshot" // (entity i64) -> i64 span
	ExportDrop       = "hostd_drop"     // (entity i64)
)

// ExportUpcast is an optional export, used when events are read.
const ExportUpcast = "hostd_upcast" // (type i32, len i32) -> i64 span

// The host's own import module and its functions.
const (
	ImportModule = "hostd"
	ImportLog    = "log"    // (level i32, ptr i32, len i32)
	ImportNow    = "now"    // () -> i64, unix nanoseconds
	ImportRandom = "random" // () -> i64
)

// ImportWASI is the module name of the WASI functions, which the host
// implements as stubs. IsWASIFunction lists them.
const ImportWASI = "wasi_snapshot_preview1"

// IsWASIFunction reports whether name is one of the WASI preview 1 functions
// that a module may import. The host rejects a module that imports any other
// WASI function.
func IsWASIFunction(name string) bool {
	switch name {
	case "sched_yield", "proc_exit", "args_get", "args_sizes_get",
		"clock_time_get", "clock_res_get", "environ_get", "environ_sizes_get",
		"fd_write", "random_get", "poll_oneoff",
		"fd_close", "fd_read", "fd_seek", "fd_filestat_get", "path_filestat_get",
		"path_open", "fd_fdstat_get", "fd_fdstat_set_flags",
		"fd_prestat_get", "fd_prestat_dir_name":
		return true
	}
	return false
}

// LogLevel is the type of the first argument of the log import.
type LogLevel int32

// Log levels. A number above LogError is logged as LogError, and a number below
// LogDebug as LogDebug.
const (
	LogDebug LogLevel = 0
	LogInfo  LogLevel = 1
	LogWarn  LogLevel = 2
	LogError LogLevel = 3
)

// LoadStatus is the result of hostd_load. A number that is not listed is a
// fault.
type LoadStatus int32

// Results of hostd_load.
const (
	LoadDone       LoadStatus = 0 // the entity's state is loaded
	LoadUnreadable LoadStatus = 1 // the guest cannot read this snapshot
	LoadNoRoom     LoadStatus = 2 // the guest has no memory for another entity
)

// ApplyDone is the only successful result of hostd_apply; any other number is a
// fault.
const ApplyDone int32 = 0

// A Span is a range of bytes in a guest's memory: address<<32 | length. Zero is
// the empty span.
type Span uint64

// PackSpan returns the span of length bytes at address.
func PackSpan(address, length uint32) Span {
	return Span(uint64(address)<<32 | uint64(length))
}

// Address returns the offset of the first byte in linear memory.
func (s Span) Address() uint32 { return uint32(s >> 32) }

// Length returns the number of bytes.
func (s Span) Length() uint32 { return uint32(s) }

// Within reports whether the span lies inside a memory of memoryBytes bytes. An
// empty span lies inside any memory.
func (s Span) Within(memoryBytes uint64) bool {
	return s.Length() == 0 || uint64(s.Address())+uint64(s.Length()) <= memoryBytes
}
