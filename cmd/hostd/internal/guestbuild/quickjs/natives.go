package quickjs

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

// nativeFunction is a function that the SDK's runtime finds as __hostd_NAME,
// and then hides from scripts.
type nativeFunction struct {
	name       string
	parameters uint32
	body       []byte
}

// The parameters of a native function.
const (
	atContext   = 0
	atArguments = 3 // address of the values of 8 bytes
	firstLocal  = 4
)

// natives returns all native functions. Only the SDK calls them, so they do not
// check the types of arguments.
func (g *glue) natives(lines, linesSize uint32) []nativeFunction {
	return []nativeFunction{
		{"text", 2, g.nativeText()},
		{"json", 2, g.nativeJSON()},
		{"read", 2, g.nativeRead()},
		{"put", 4, g.nativePut()},
		{"input", 1, g.nativeBuffer(g.input)},
		{"output", 1, g.nativeBuffer(g.output)},
		{"log", 2, g.nativeLog()},
		{"say", 1, g.nativeSay()},
		{"serve", 1, g.nativeServe()},
		{"lines", 0, g.nativeLines(lines, linesSize)},
		{"jobs", 0, g.nativeJobs()},
		{"digest", 2, g.nativeDigest()},
		{"digest128", 2, g.nativeDigest128()},
	}
}

// argument pushes the address of an input byte. The script's argument is the
// offset from the start of the buffer.
func (g *glue) argument(c *code, number uint32) *code {
	return c.global(g.input).get(atArguments).load32(8 * number).op(wasm.OpI32Add)
}

// nativeText returns text(at, length): the UTF-8 of the input as a string.
func (g *glue) nativeText() []byte {
	c := new(code).get(atContext)
	g.argument(c, 0).get(atArguments).load32(8)
	return g.do(c, "JS_NewStringLen").body("")
}

// exactDigits is how many digits an integer may have so that every such integer
// is exactly a double. The engine's parser can parse those numbers.
const exactDigits = 15

// nativeJSON returns json(at, length): the value of a JSON text in the input,
// or undefined if it has more than exactDigits digits in a row, with or without
// a point among them. The SDK parses such a text itself. The engine needs a 0
// after the text, so the byte there is saved and restored. The buffer is longer
// than its input.
func (g *glue) nativeJSON() []byte {
	const end, saved, value, at, row, is = firstLocal, firstLocal + 1, firstLocal + 2, firstLocal + 3, firstLocal + 4, firstLocal + 5
	c := new(code)
	g.argument(c, 0).tee(at).get(atArguments).load32(8).op(wasm.OpI32Add).set(end)
	c.op(wasm.OpLoop, blockVoid)
	c.get(at).get(end).op(wasm.OpI32LtU).when()
	c.get(at).load8(0).i32('0').op(wasm.OpI32Sub).i32(10).op(wasm.OpI32LtU).tee(is).get(row).op(wasm.OpI32Add).set(row)
	c.get(row).i32(exactDigits).op(wasm.OpI32GtU).when().i64(undefined).op(wasm.OpReturn).end()
	c.get(is).op(wasm.OpI32Eqz).when().get(row).i32(0).get(at).load8(0).i32('.').op(opI32Eq, wasm.OpSelect).set(row).end()
	c.get(at).i32(1).op(wasm.OpI32Add).set(at)
	c.index(wasm.OpBr, 1).end().end()
	c.get(end).load8(0).set(saved)
	c.get(end).i32(0).store8(0)
	c.get(atContext)
	g.argument(c, 0).get(atArguments).load32(8).i32(g.text("payload"))
	g.do(c, "JS_ParseJSON").set(value)
	c.get(end).get(saved).store8(0)
	return c.get(value).body(i32 + i32 + i64 + i32 + i32 + i32)
}

// string reads an argument as UTF-8 into two locals. If that fails, the
// function returns the exception.
func (g *glue) string(c *code, number, pointer, length uint32) {
	c.get(atContext).i32(g.base() + sizeAt).get(atArguments).load64(8 * number).i32(0)
	g.do(c, "JS_ToCStringLen2").tee(pointer).op(wasm.OpI32Eqz).when()
	g.rethrow(c).end()
	c.i32(g.base()).load32(sizeAt).set(length)
}

func (g *glue) freeString(c *code, pointer uint32) *code {
	return g.do(c.get(atContext).get(pointer), "JS_FreeCString")
}

// frameKinds is the number of frame kinds in a request: the table of read has
// that many offsets, followed by as many sizes.
const frameKinds = 33

// nativeRead returns read(end, table): it finds the frames of the input. The
// table, an ArrayBuffer of int32, receives the offset of each kind, or -1 if
// the kind is missing, followed by the sizes. The result is false if a frame
// is truncated.
func (g *glue) nativeRead() []byte {
	const table, at, end, kind, size = firstLocal, firstLocal + 1, firstLocal + 2, firstLocal + 3, firstLocal + 4
	c := new(code).get(atContext).i32(g.base() + sizeAt).get(atArguments).load64(8)
	g.do(c, "JS_GetArrayBuffer").tee(table).i32(0xff).i32(4 * frameKinds).fillMemory()
	c.global(g.input).tee(at).get(atArguments).load32(0).op(wasm.OpI32Add).set(end)
	c.op(wasm.OpLoop, blockVoid)
	c.get(at).get(end).op(wasm.OpI32LtU).when()
	c.get(end).get(at).op(wasm.OpI32Sub).i32(abi.HeaderBytes).op(wasm.OpI32LtU).when().i64(no).op(wasm.OpReturn).end()
	c.get(at).load8(0).set(kind).get(at).access(opI32Load, align8, 1).set(size)
	c.get(at).i32(abi.HeaderBytes).op(wasm.OpI32Add).set(at)
	c.get(size).get(end).get(at).op(wasm.OpI32Sub).op(wasm.OpI32GtU).when().i64(no).op(wasm.OpReturn).end()
	c.get(kind).i32(frameKinds).op(wasm.OpI32LtU).when()
	entry := func() { c.get(table).get(kind).i32(2).op(opI32Shl, wasm.OpI32Add) }
	entry()
	c.get(at).global(g.input).op(wasm.OpI32Sub).store32(0)
	entry()
	c.get(size).store32(4 * frameKinds)
	c.end()
	c.get(at).get(size).op(wasm.OpI32Add).set(at)
	c.index(wasm.OpBr, 1).end().end()
	return c.i64(yes).body(i32 + i32 + i32 + i32 + i32)
}

// Values of put's argument what, which says what put writes before a text:
// nothing, the text's length, or the header of a frame of a kind.
const (
	bare     = 0
	measured = -1
)

// nativePut returns put(text, at, capacity, what): it writes the UTF-8 of a
// text and the wanted prefix to the output, if both fit, and returns their
// length.
func (g *glue) nativePut() []byte {
	const pointer, length, what, total, to = firstLocal, firstLocal + 1, firstLocal + 2, firstLocal + 3, firstLocal + 4
	const fieldBytes = 2
	c := new(code)
	g.string(c, 0, pointer, length)
	c.get(atArguments).load32(24).set(what).get(length).set(total)
	is := func(kind int32) *code { return c.get(what).i32(uint32(kind)).op(opI32Eq) }
	add := func(local, bytes uint32) { c.get(local).i32(bytes).op(wasm.OpI32Add).set(local) }
	is(measured).when()
	add(total, fieldBytes)
	c.end().get(what).i32(bare).op(opI32GtS).when()
	add(total, abi.HeaderBytes)
	c.end()
	c.get(atArguments).load32(8).get(total).op(wasm.OpI32Add).get(atArguments).load32(16).op(opI32LeU).when()
	c.global(g.output).get(atArguments).load32(8).op(wasm.OpI32Add).set(to)
	is(measured).when().get(to).get(length).access(opI32Store16, align8, 0)
	add(to, fieldBytes)
	c.end().get(what).i32(bare).op(opI32GtS).when()
	c.get(to).get(what).store8(0).get(to).get(length).access(opI32Store, align8, 1)
	add(to, abi.HeaderBytes)
	c.end().get(to).get(pointer).get(length).copyMemory().end()
	return g.freeString(c, pointer).get(total).op(wasm.OpI64ExtendU).body(i32 + i32 + i32 + i32 + i32)
}

// nativeBuffer returns input(buffer) and output(buffer): they set the address
// of an ArrayBuffer, which the SDK keeps alive.
func (g *glue) nativeBuffer(address uint32) []byte {
	c := new(code).get(atContext).i32(g.base() + sizeAt).get(atArguments).load64(0)
	return g.do(c, "JS_GetArrayBuffer").setGlobal(address).i64(undefined).body("")
}

// nativeLog returns log(level, text): it writes a line to the node's log.
func (g *glue) nativeLog() []byte {
	const pointer, length = firstLocal, firstLocal + 1
	c := new(code)
	g.string(c, 1, pointer, length)
	c.get(atArguments).load32(0).get(pointer).get(length).call(g.log)
	return g.freeString(c, pointer).i64(undefined).body(i32 + i32)
}

// nativeSay returns say(text): it writes to standard error.
func (g *glue) nativeSay() []byte {
	const pointer, length = firstLocal, firstLocal + 1
	c := new(code)
	g.string(c, 0, pointer, length)
	g.say(c, pointer, length)
	return g.freeString(c, pointer).i64(undefined).body(i32 + i32)
}

// nativeServe returns serve(function): it sets the function that the host's
// calls are passed to.
func (g *glue) nativeServe() []byte {
	c := new(code).get(atContext).get(atArguments).load64(0)
	return g.do(c, "JS_DupValue").setGlobal(g.entry).i64(undefined).body("")
}

// nativeLines returns lines(): the table that maps the script's lines to the
// sources.
func (g *glue) nativeLines(at, size uint32) []byte {
	return g.do(new(code).get(atContext).i32(at).i32(size), "JS_NewStringLen").body("")
}

// rethrow returns the pending exception of the engine to the script.
func (g *glue) rethrow(c *code) *code {
	return g.do(g.do(c.get(atContext).get(atContext), "JS_GetException"), "JS_Throw").op(wasm.OpReturn)
}

// nativeJobs returns jobs(): it runs the engine's jobs, which continue async
// functions and call the reactions of promises, until none is left. Jobs may
// add jobs, so only the fuel of the call limits them.
func (g *glue) nativeJobs() []byte {
	const result = firstLocal
	c := new(code).op(wasm.OpLoop, blockVoid)
	g.do(c.global(g.runtime).i32(g.base()+jobContextAt), "JS_ExecutePendingJob").tee(result).i32(0).op(opI32GtS)
	c.index(wasm.OpBrIf, 0).end()
	c.get(result).when()
	g.rethrow(c).end()
	return c.i64(undefined).body(i32)
}

// eachByte runs a body for each byte of a text, and returns the text's length.
// The argument numbered 1 is an ArrayBuffer for the result, whose address the
// body finds in out. at is a local.
func (g *glue) eachByte(before, body, after func(c *code), pointer, length, at, end, out uint32) *code {
	c := new(code).get(atContext).i32(g.base() + sizeAt).get(atArguments).load64(8)
	g.do(c, "JS_GetArrayBuffer").set(out)
	g.string(c, 0, pointer, length)
	c.get(pointer).tee(at).get(length).op(wasm.OpI32Add).set(end)
	before(c)
	c.op(wasm.OpLoop, blockVoid)
	c.get(at).get(end).op(wasm.OpI32LtU).when()
	body(c)
	c.get(at).i32(1).op(wasm.OpI32Add).set(at)
	c.index(wasm.OpBr, 1).end().end()
	after(c)
	return g.freeString(c, pointer).get(length).op(wasm.OpI64ExtendU)
}

// Constants of the hash functions FNV-1a of 64 and 128 bits.
const (
	fnvOffset64       = 14695981039346656037
	fnvPrime64        = 1099511628211
	fnvOffset128Upper = 0x6c62272e07bb0142
	fnvOffset128Lower = 0x62b821756295c58d
	fnvPrime128Lower  = 0x13b
	fnvPrime128Shift  = 24
)

// nativeDigest returns digest(text, out): it writes the FNV-1a hash of 64 bits
// of a text's UTF-8 to an ArrayBuffer, and returns how many bytes the text has.
func (g *glue) nativeDigest() []byte {
	const pointer, length, at, end, out, hash = firstLocal, firstLocal + 1, firstLocal + 2, firstLocal + 3, firstLocal + 4, firstLocal + 5
	return g.eachByte(func(c *code) {
		c.i64(fnvOffset64).set(hash)
	}, func(c *code) {
		c.get(hash).get(at).load8(0).op(wasm.OpI64ExtendU, opI64Xor).i64(fnvPrime64).op(wasm.OpI64Mul).set(hash)
	}, func(c *code) {
		c.get(out).get(hash).store64(0)
	}, pointer, length, at, end, out).body(i32 + i32 + i32 + i32 + i32 + i64)
}

// nativeDigest128 returns digest128(text, out): as digest, with 128 bits, of
// which the upper half comes first.
func (g *glue) nativeDigest128() []byte {
	const pointer, length, at, end, out = firstLocal, firstLocal + 1, firstLocal + 2, firstLocal + 3, firstLocal + 4
	const upper, lower, part = firstLocal + 5, firstLocal + 6, firstLocal + 7
	return g.eachByte(func(c *code) {
		c.i64(fnvOffset128Upper).set(upper).i64(fnvOffset128Lower).set(lower)
	}, func(c *code) {
		c.get(lower).get(at).load8(0).op(wasm.OpI64ExtendU, opI64Xor).set(lower)
		// The upper half of lower * prime, whose product may have 73 bits, from
		// two products of its halves.
		c.get(lower).i64(0xffffffff).op(opI64And).i64(fnvPrime128Lower).op(wasm.OpI64Mul).i64(32).op(opI64ShrU)
		c.get(lower).i64(32).op(opI64ShrU).i64(fnvPrime128Lower).op(wasm.OpI64Mul, wasm.OpI64Add).i64(32).op(opI64ShrU).set(part)
		c.get(upper).i64(fnvPrime128Lower).op(wasm.OpI64Mul).get(lower).i64(fnvPrime128Shift).op(wasm.OpI64Shl, wasm.OpI64Add)
		c.get(part).op(wasm.OpI64Add).set(upper)
		c.get(lower).i64(fnvPrime128Lower).op(wasm.OpI64Mul).set(lower)
	}, func(c *code) {
		c.get(out).get(upper).store64(0).get(out).get(lower).store64(8)
	}, pointer, length, at, end, out).body(i32 + i32 + i32 + i32 + i32 + i64 + i64 + i64)
}
