package quickjs

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

const (
	i32 = wasm.I32
	i64 = wasm.I64
)

// Calls of the guest contract, as the SDK's runtime numbers them: the number is
// the first argument of the SDK's only function.
const (
	callDescribe = iota
	callBuffer
	callLoad
	callApply
	callHandle
	callQuery
	callSnapshot
	callDrop
	callFail // a script that threw; the second argument is the exception
	callUpcast
)

const (
	// Limits of the C stack of the engine, beyond which a script gets a
	// RangeError: during loading, which also runs the engine's parser, and
	// during calls. A recursion must hit this limit before the host's. The host
	// has 4 MiB and counts 35 KB for each call of a script's function, because
	// the engine's interpreter is one large function. That allows about 105
	// nested calls.
	loadStack = 512 << 10
	callStack = 28 << 10
	// maxEntities limits handles, so that a wrong one does not exhaust memory.
	maxEntities = 1 << 26
	maxInput    = 4 << 20

	evalStrict    = 1 << 3 // the code of a module is strict
	standardError = 2      // file descriptor of WASI

	// undefined is JavaScript's undefined in the engine's encoding of values: a
	// tag in the upper half, and in the lower half a value that depends on the
	// tag. The tag of an int32 is 0.
	undefined = 3 << 32
	no        = 1 << 32
	yes       = 1<<32 | 1
)

// Offsets from the base, in the memory that belongs to the glue.
const (
	argumentsAt = 0  // four values
	sizeAt      = 32 // length of a text
	vectorAt    = 40 // an iovec for fd_write
	writtenAt   = 48
	// jobContextAt receives the context of a job, which is always the same.
	jobContextAt = 52
	textsAt      = 64
)

// imported are the engine's functions that the glue calls.
var imported = map[string]wasm.Signature{
	"_initialize":          {},
	"qjs_init":             {Results: i32},
	"qjs_get_context_ptr":  {Results: i32},
	"qjs_get_runtime_ptr":  {Results: i32},
	"JS_SetMaxStackSize":   {Params: i32 + i32},
	"JS_NewCFunction2":     {Params: i32 + i32 + i32 + i32 + i32 + i32, Results: i64},
	"JS_GetGlobalObject":   {Params: i32, Results: i64},
	"JS_SetPropertyStr":    {Params: i32 + i64 + i32 + i64, Results: i32},
	"JS_Eval":              {Params: i32 + i32 + i32 + i32 + i32, Results: i64},
	"JS_Call":              {Params: i32 + i64 + i64 + i32 + i32, Results: i64},
	"JS_GetException":      {Params: i32, Results: i64},
	"JS_Throw":             {Params: i32 + i64, Results: i64},
	"JS_FreeValue":         {Params: i32 + i64},
	"JS_DupValue":          {Params: i32 + i64, Results: i64},
	"JS_IsJobPending":      {Params: i32, Results: i32},
	"JS_ExecutePendingJob": {Params: i32 + i32, Results: i32},
	"JS_RunGC":             {Params: i32},
	"JS_NewStringLen":      {Params: i32 + i32 + i32, Results: i64},
	"JS_ParseJSON":         {Params: i32 + i32 + i32 + i32, Results: i64},
	"JS_ToCStringLen2":     {Params: i32 + i32 + i64 + i32, Results: i32},
	"JS_FreeCString":       {Params: i32 + i32},
	"JS_GetArrayBuffer":    {Params: i32 + i32 + i64, Results: i32},
}

// native is the signature of functions that scripts call. It is the signature
// of the engine's C functions.
var native = wasm.Signature{Params: i32 + i64 + i32 + i32, Results: i64}

// glue generates the functions of the guest contract on top of the engine's
// functions.
type glue struct {
	*extension
	calls map[string]uint32
	log   uint32 // hostd.log
	write uint32 // fd_write of WASI

	context, runtime uint32 // globals: pointers in the engine
	entry            uint32 // global: the SDK's function
	input, output    uint32 // globals: addresses of the buffers
	capacity         uint32 // global: size of the input buffer

	texts  []byte // constants, starting at textsAt
	die    uint32 // ends the call with an exception
	invoke uint32 // calls the SDK's function
}

// assemble builds a guest from an engine, a script and the table that maps the
// script's lines to the sources.
func assemble(e *jsEngine, script, lines []byte) ([]byte, error) {
	g := &glue{calls: map[string]uint32{}}
	for name, s := range imported {
		index, err := e.function(name, s)
		if err != nil {
			return nil, err
		}
		g.calls[name] = index
	}
	var err error
	if g.extension, g.log, err = extend(e, wasm.Signature{Params: i32 + i32 + i32}, stub); err != nil {
		return nil, err
	}
	for i, imp := range e.Imports {
		if imp.Module == moduleWASI && imp.Name == "fd_write" {
			g.write = g.moved[uint32(i)]
		}
	}
	g.context, g.runtime = g.variable(wasm.TypeI32), g.variable(wasm.TypeI32)
	g.entry = g.variable(wasm.TypeI64)
	g.input, g.output, g.capacity = g.variable(wasm.TypeI32), g.variable(wasm.TypeI32), g.variable(wasm.TypeI32)
	g.defineDie()
	g.defineInvoke()
	g.exportContract()

	// The generated functions below may still add texts, so the script starts at a
	// fixed distance from the base, which leaves room for them.
	scriptAt := g.base() + wasm.PageBytes
	linesAt := scriptAt + uint32(len(script)) + 1 // and a 0, which ends the engine's input
	g.exportInitialize(scriptAt, uint32(len(script)), linesAt, uint32(len(lines)))
	g.data = []wasm.Segment{
		{Offset: g.base() + textsAt, Data: g.texts},
		{Offset: scriptAt, Data: append(append(append([]byte{}, script...), 0), lines...)},
	}
	end := linesAt + uint32(len(lines))
	g.pages = (end - g.base() + wasm.PageBytes - 1) / wasm.PageBytes
	return g.extension.write()
}

// stub returns the replacement of a wrapper function: no interrupts, UTC, and
// no access to anything else.
func stub(name string, s wasm.Signature) []byte {
	var c code
	switch name {
	case "host_interrupt", "host_get_timezone_offset":
		c.i32(0)
	case "host_promise_rejection":
	default:
		c.op(wasm.OpUnreachable)
	}
	return c.body("")
}

// text returns the address of a constant that ends with a 0.
func (g *glue) text(s string) uint32 {
	at := g.base() + textsAt + uint32(len(g.texts))
	g.texts = append(append(g.texts, s...), 0)
	return at
}

func (g *glue) do(c *code, name string) *code { return c.call(g.calls[name]) }

// say writes a text to standard error, which the host includes in faults;
// pointer and length are locals.
func (g *glue) say(c *code, pointer, length uint32) {
	base := g.base()
	c.i32(base).get(pointer).store32(vectorAt)
	c.i32(base).get(length).store32(vectorAt + 4)
	c.i32(standardError).i32(base + vectorAt).i32(1).i32(base + writtenAt).call(g.write).op(wasm.OpDrop)
}

// sayText is say for a constant.
func (g *glue) sayText(c *code, text string, pointer, length uint32) {
	c.i32(g.text(text)).set(pointer).i32(uint32(len(text))).set(length)
	g.say(c, pointer, length)
}

// defineDie defines a function that reports an uncaught exception, if enough
// memory is left for that, and ends the call with a trap.
func (g *glue) defineDie() {
	const pointer, length = 0, 1
	var c code
	g.sayText(&c, "JavaScript threw: ", pointer, length)
	c.global(g.context).i32(g.base() + sizeAt)
	g.do(c.global(g.context), "JS_GetException").i32(0)
	g.do(&c, "JS_ToCStringLen2").tee(pointer).when()
	c.i32(g.base()).load32(sizeAt).set(length)
	g.say(&c, pointer, length)
	c.end().op(wasm.OpUnreachable)
	g.die = g.define(wasm.Signature{}, c.body(i32+i32))
}

// defineInvoke defines a function that calls the SDK's function with four
// numbers. It returns a number, which is negative if the call must end because
// the SDK has reported an error.
func (g *glue) defineInvoke() {
	const value, pointer, length = 4, 5, 6
	var c code
	for i := range uint32(4) {
		c.i32(g.base()).get(i).op(wasm.OpI64ExtendU).store64(argumentsAt + 8*i)
	}
	c.global(g.context).global(g.entry).i64(undefined).i32(4).i32(g.base() + argumentsAt)
	g.do(&c, "JS_Call").tee(value).i64(32).op(opI64ShrU, opI64Eqz, wasm.OpI32Eqz).when().call(g.die).end()
	g.do(c.global(g.runtime), "JS_IsJobPending").when()
	g.sayText(&c, "a promise was used: handlers are synchronous, so its continuation never runs\n", pointer, length)
	c.op(wasm.OpUnreachable).end()
	c.get(value).op(opI32Wrap).tee(pointer).i32(31).op(wasm.OpI32ShrU).when().op(wasm.OpUnreachable).end()
	c.get(pointer)
	g.invoke = g.define(wasm.Signature{Params: i32 + i32 + i32 + i32, Results: i32}, c.body(i64+i32+i32))
}

// exportContract exports the functions of the guest contract except
// _initialize.
func (g *glue) exportContract() {
	export := func(name, params, results, locals string, c *code) {
		g.export(name, g.define(wasm.Signature{Params: params, Results: results}, c.body(locals)))
	}
	// call leaves the result on the stack. handle, length and typ are locals,
	// or none.
	const none = ^uint32(0)
	call := func(number uint32, handle, length, typ uint32) *code {
		c := new(code).i32(number)
		if handle == none {
			c.i32(0)
		} else {
			c.get(handle).op(opI32Wrap)
		}
		for _, local := range []uint32{length, typ} {
			if local == none {
				c.i32(0)
			} else {
				c.get(local)
			}
		}
		return c.call(g.invoke)
	}
	// span converts a length on the stack to a span of the output; an empty one
	// is 0.
	span := func(c *code, local uint32) *code {
		c.tee(local).op(wasm.OpI64ExtendU).global(g.output).op(wasm.OpI64ExtendU).i64(32).op(wasm.OpI64Shl, wasm.OpI64Or)
		return c.i64(0).get(local).op(wasm.OpSelect)
	}
	export(abi.ExportABI, "", i32, "", new(code).i32(abi.Version))
	export(abi.ExportDescribe, "", i64, i32, span(call(callDescribe, none, none, none), 0))
	export(abi.ExportLoad, i32+i64+i32, i32, "", new(code).
		get(1).i64(maxEntities).op(wasm.OpI64GtU).when().i32(uint32(abi.LoadNoRoom)).op(wasm.OpReturn).end().
		op(call(callLoad, 1, 2, 0).bytes...))
	export(abi.ExportApply, i64+i32, i32, "", call(callApply, 0, 1, none))
	export(abi.ExportHandle, i64+i32, i64, i32, span(call(callHandle, 0, 1, none), 2))
	export(abi.ExportQuery, i64+i32, i64, i32, span(call(callQuery, 0, 1, none), 2))
	export(abi.ExportSnapshot, i64, i64, i32, span(call(callSnapshot, 0, none, none), 1))
	export(abi.ExportUpcast, i32+i32, i64, i32, span(new(code).i32(callUpcast).get(0).get(1).i32(0).call(g.invoke), 2))
	export(abi.ExportDrop, i64, "", "", call(callDrop, 0, none, none).op(wasm.OpDrop))
	g.exportBuffer()
}

// exportBuffer exports hostd_buffer. Most calls find a buffer that is large
// enough.
func (g *glue) exportBuffer() {
	var c code
	c.get(0).i32(maxInput).op(wasm.OpI32GtU).when().i32(0).op(wasm.OpReturn).end()
	c.get(0).global(g.capacity).op(wasm.OpI32GtU).when()
	c.i32(callBuffer).i32(0).get(0).i32(0).call(g.invoke).setGlobal(g.capacity).end()
	c.global(g.input)
	g.export(abi.ExportBuffer, g.define(wasm.Signature{Params: i32, Results: i32}, c.body("")))
}

// exportInitialize exports _initialize, which starts the engine, creates the
// native functions and runs the script.
func (g *glue) exportInitialize(script, scriptSize, lines, linesSize uint32) {
	const global, value, pointer, length = 0, 1, 2, 3
	var c code
	g.do(&c, "_initialize")
	g.do(&c, "qjs_init").when().op(wasm.OpUnreachable).end()
	g.do(&c, "qjs_get_context_ptr").setGlobal(g.context)
	g.do(&c, "qjs_get_runtime_ptr").setGlobal(g.runtime)
	g.do(c.global(g.runtime).i32(loadStack), "JS_SetMaxStackSize")
	g.do(c.global(g.context), "JS_GetGlobalObject").set(global)
	for _, n := range g.natives(lines, linesSize) {
		name := g.text("__hostd_" + n.name)
		place := g.place(g.define(native, n.body))
		c.global(g.context).get(global).i32(name)
		g.do(c.global(g.context).i32(place).i32(name).i32(n.parameters).i32(0).i32(0), "JS_NewCFunction2")
		g.do(&c, "JS_SetPropertyStr").op(wasm.OpDrop)
	}
	g.do(c.global(g.context).get(global), "JS_FreeValue")
	g.do(c.global(g.context).i32(script).i32(scriptSize).i32(g.text(scriptName)).i32(evalStrict), "JS_Eval")
	// A script ends with a statement that has no value. Any other value is an
	// exception.
	c.tee(value).i64(undefined).op(opI64Ne).when()
	c.global(g.entry).op(opI64Eqz).when().call(g.die).end()
	c.i32(g.base()).i64(callFail).store64(argumentsAt)
	g.do(c.i32(g.base()).global(g.context), "JS_GetException").store64(argumentsAt + 8)
	c.global(g.context).global(g.entry).i64(undefined).i32(2).i32(g.base() + argumentsAt)
	g.do(&c, "JS_Call").op(wasm.OpDrop, wasm.OpUnreachable).end()
	g.do(c.global(g.runtime), "JS_IsJobPending").when()
	g.sayText(&c, "a promise was used while the script was loaded: its continuation never runs\n", pointer, length)
	c.op(wasm.OpUnreachable).end()
	g.do(c.global(g.runtime).i32(callStack), "JS_SetMaxStackSize")
	g.do(c.global(g.runtime), "JS_RunGC")
	g.export(abi.ExportInitialize, g.define(wasm.Signature{}, c.body(i64+i64+i32+i32)))
}
