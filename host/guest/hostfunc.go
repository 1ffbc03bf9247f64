package guest

import (
	"context"
	"fmt"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/tetratelabs/wazero/api"
)

// hostFunction is a function that a guest may import. call reads its parameters
// from stack and leaves its result there. Pointers and lengths come from the
// guest and are not trusted: every access must go through memory, which checks
// bounds.
type hostFunction struct {
	module, name string
	wasm.Signature
	call func(g *Instance, memory api.Memory, stack []uint64)
}

// hostFunctions returns all functions that a guest can call.
func hostFunctions() []hostFunction {
	return append(contractFunctions(), wasiFunctions()...)
}

// importable returns the signature of a host function.
func importable(module, name string) (wasm.Signature, bool) {
	for _, f := range hostFunctions() {
		if f.module == module && f.name == name {
			return f.Signature, true
		}
	}
	return wasm.Signature{}, false
}

// contractFunctions returns the functions of the host's own import module.
func contractFunctions() []hostFunction {
	own := func(name, params, results string, call func(*Instance, api.Memory, []uint64)) hostFunction {
		return hostFunction{abi.ImportModule, name, wasm.Signature{Params: params, Results: results}, call}
	}
	return []hostFunction{
		own(abi.ImportLog, i32+i32+i32, "", func(g *Instance, memory api.Memory, stack []uint64) {
			level, address, length := abi.LogLevel(int32(stack[0])), uint32(stack[1]), uint32(stack[2])
			text, ok := memory.Read(address, min(length, uint32(g.module.engine.limits.LogLineBytes)))
			if !ok || !(abi.PackSpan(address, length)).Within(uint64(memory.Size())) {
				panic(forbidden("log: the text lies outside of memory"))
			}
			g.spendBytes(len(text))
			g.log.line(level, text)
			if level >= abi.LogError { // an error line may explain the fault that follows
				g.words.add(text)
				g.words.add([]byte{'\n'})
			}
		}),
		own(abi.ImportNow, "", i64, func(g *Instance, _ api.Memory, stack []uint64) {
			g.mustDecide(abi.ImportNow)
			stack[0] = uint64(g.clock)
		}),
		own(abi.ImportRandom, "", i64, func(g *Instance, _ api.Memory, stack []uint64) {
			g.mustDecide(abi.ImportRandom)
			stack[0] = g.random.next()
		}),
	}
}

// mustDecide ends a call in which the guest asks for time or randomness while
// it evolves state, because a replay would get a different answer.
func (g *Instance) mustDecide(name string) {
	if !g.deciding {
		panic(forbidden(name + " may only be called during a command or query"))
	}
}

// maxHostCalls bounds the calls of host functions within one guest call. A Go
// guest that runs a thousand goroutines makes about ten thousand.
const maxHostCalls = 1 << 20

// registerHostFunctions creates the import modules in the runtime.
func (e *Engine) registerHostFunctions(ctx context.Context) error {
	for _, module := range []string{abi.ImportModule, abi.ImportWASI} {
		builder := e.runtime.NewHostModuleBuilder(module)
		for _, f := range hostFunctions() {
			if f.module != module {
				continue
			}
			call := f.call
			counted := func(ctx context.Context, caller api.Module, stack []uint64) {
				g := ctx.(*callContext).instance
				if g.hostCalls++; g.hostCalls > maxHostCalls {
					panic(forbidden(fmt.Sprintf("more than %d calls to host functions in one guest call", maxHostCalls)))
				}
				call(g, caller.Memory(), stack)
			}
			builder.NewFunctionBuilder().
				WithGoModuleFunction(api.GoModuleFunc(counted), []api.ValueType(f.Params), []api.ValueType(f.Results)).
				Export(f.name)
		}
		if _, err := builder.Instantiate(ctx); err != nil {
			return err
		}
	}
	return nil
}

// callContext carries the instance to the host functions, which get it with a
// type assertion, because that is cheaper than a lookup of a context value.
type callContext struct {
	context.Context
	instance *Instance
}
