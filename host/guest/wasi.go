package guest

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/tetratelabs/wazero/api"
)

// Error numbers of WASI preview 1.
const (
	errnoSuccess = 0
	errnoBadF    = 8
	errnoFault   = 21
	errnoInval   = 28
)

// wasiFunctions returns the functions of WASI preview 1 that a language's
// runtime or standard library links in. They grant nothing: no files, sockets,
// arguments or environment, and time and randomness only as the guest contract
// allows.
func wasiFunctions() []hostFunction {
	wasi := func(name, params string, call func(*Instance, api.Memory, []uint64) uint32) hostFunction {
		return hostFunction{abi.ImportWASI, name, wasm.Signature{Params: params, Results: i32}, func(g *Instance, memory api.Memory, stack []uint64) {
			stack[0] = uint64(call(g, memory, stack))
		}}
	}
	return []hostFunction{
		wasi("args_get", i32+i32, succeed),
		wasi("args_sizes_get", i32+i32, writeZeros),
		wasi("environ_get", i32+i32, succeed),
		wasi("environ_sizes_get", i32+i32, writeZeros),
		wasi("clock_res_get", i32+i32, clockResolution),
		wasi("clock_time_get", i32+i64+i32, clockTime),
		wasi("fd_close", i32, badDescriptor),
		wasi("fd_fdstat_get", i32+i32, descriptorStatus),
		wasi("fd_fdstat_set_flags", i32+i32, badDescriptor),
		wasi("fd_filestat_get", i32+i32, badDescriptor),
		wasi("fd_prestat_dir_name", i32+i32+i32, badDescriptor),
		wasi("fd_prestat_get", i32+i32, badDescriptor),
		wasi("fd_read", i32+i32+i32+i32, badDescriptor),
		wasi("fd_seek", i32+i64+i32+i32, badDescriptor),
		wasi("fd_write", i32+i32+i32+i32, descriptorWrite),
		wasi("path_filestat_get", i32+i32+i32+i32+i32, badDescriptor),
		wasi("path_open", i32+i32+i32+i32+i32+i64+i64+i32+i32, badDescriptor),
		wasi("poll_oneoff", i32+i32+i32+i32, poll),
		wasi("random_get", i32+i32, randomGet),
		wasi("sched_yield", "", succeed),
		{abi.ImportWASI, "proc_exit", wasm.Signature{Params: i32}, func(_ *Instance, _ api.Memory, stack []uint64) {
			panic(exited(stack[0]))
		}},
	}
}

func succeed(*Instance, api.Memory, []uint64) uint32 { return errnoSuccess }

func badDescriptor(*Instance, api.Memory, []uint64) uint32 { return errnoBadF }

// writeZeros reports zero arguments or environment variables of total size 0.
func writeZeros(_ *Instance, memory api.Memory, stack []uint64) uint32 {
	if !memory.WriteUint32Le(uint32(stack[0]), 0) || !memory.WriteUint32Le(uint32(stack[1]), 0) {
		return errnoFault
	}
	return errnoSuccess
}

// lastClock is the highest clock id. The clocks are realtime, monotonic,
// process CPU time and thread CPU time; all four return the same time.
const lastClock = 3

func clockResolution(_ *Instance, memory api.Memory, stack []uint64) uint32 {
	if uint32(stack[0]) > lastClock {
		return errnoInval
	}
	if !memory.WriteUint64Le(uint32(stack[1]), 1) {
		return errnoFault
	}
	return errnoSuccess
}

func clockTime(g *Instance, memory api.Memory, stack []uint64) uint32 {
	if uint32(stack[0]) > lastClock {
		return errnoInval
	}
	if !memory.WriteUint64Le(uint32(stack[2]), uint64(g.clock)) {
		return errnoFault
	}
	return errnoSuccess
}

// maxRandomBytes bounds one random_get. It is much more than getentropy allows.
// A guest that wants more bytes calls again.
const maxRandomBytes = 64 << 10

func randomGet(g *Instance, memory api.Memory, stack []uint64) uint32 {
	address, length := uint32(stack[0]), uint32(stack[1])
	if length > maxRandomBytes {
		return errnoInval
	}
	dst, ok := memory.Read(address, length)
	if !ok {
		return errnoFault
	}
	g.spendBytes(len(dst))
	g.system.fill(dst)
	return errnoSuccess
}

// descriptorStatus reports that descriptors 0, 1 and 2 are character devices;
// otherwise libraries do not write to them.
func descriptorStatus(_ *Instance, memory api.Memory, stack []uint64) uint32 {
	const characterDevice, rightToRead, rightToWrite = 2, 1 << 1, 1 << 6
	if uint32(stack[0]) > 2 {
		return errnoBadF
	}
	status, ok := memory.Read(uint32(stack[1]), 24)
	if !ok {
		return errnoFault
	}
	clear(status)
	status[0] = characterDevice
	status[8] = rightToWrite
	if stack[0] == 0 {
		status[8] = rightToRead
	}
	return errnoSuccess
}

const (
	maxVectors    = 1024    // buffers in one fd_write
	maxWriteBytes = 1 << 20 // bytes in one fd_write
)

// descriptorWrite logs what a guest writes to standard output or error.
func descriptorWrite(g *Instance, memory api.Memory, stack []uint64) uint32 {
	fd, vectors, count, written := uint32(stack[0]), uint32(stack[1]), uint32(stack[2]), uint32(stack[3])
	if fd != 1 && fd != 2 {
		return errnoBadF
	}
	if count > maxVectors {
		return errnoInval
	}
	if !abi.PackSpan(vectors, count*8).Within(uint64(memory.Size())) {
		return errnoFault
	}
	total := uint32(0)
	for i := range count {
		address, _ := memory.ReadUint32Le(vectors + i*8)
		length, _ := memory.ReadUint32Le(vectors + i*8 + 4)
		data, ok := memory.Read(address, length)
		if !ok {
			return errnoFault
		}
		if uint64(total)+uint64(length) > maxWriteBytes {
			return errnoInval
		}
		total += length
		g.spendBytes(len(data))
		g.log.write(data)
		g.words.add(data)
	}
	if !memory.WriteUint32Le(written, total) {
		return errnoFault
	}
	return errnoSuccess
}
