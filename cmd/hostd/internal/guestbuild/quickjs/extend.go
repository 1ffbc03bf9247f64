package quickjs

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hostd/hostd/host/guest/wasm"
)

// extension writes the module of an engine with more functions in it.
//
// Functions in a Wasm module are numbered: first the imports, then the defined
// functions. The guest contract allows few imports, so the imports from the
// engine's JavaScript wrapper (env) must be removed. If that changed the
// numbers of the engine's own functions, all of its code would have to be
// rewritten. So each removed import is replaced by a defined stub, and the
// stubs fill the numbers between the remaining imports and the engine's
// functions. hostd.log is a new import and uses one number, so one stub
// moves after the engine's functions. Only calls of imports have to be
// patched.
//
//	before  imports of env | imports of WASI            | functions
//	after   imports of WASI | hostd.log | stubs but one | functions | that one | more
type extension struct {
	*jsEngine
	moved map[uint32]uint32 // new numbers of the engine's imports

	imports   []byte
	imported  int
	types     []byte
	typeCount int
	added     map[wasm.Signature]uint32

	before, after []function // defined before and after the engine's own
	exported      []byte
	exports       int
	globals       []byte
	globalCount   int
	elements      []uint32 // functions in the table, after the engine's
	data          []wasm.Segment
	pages         uint32 // number of memory pages in addition to the engine's
}

// function is an added function.
type function struct {
	typ  uint32
	body []byte
}

// extend begins an extension. stub returns the body of the replacement of an
// import.
func extend(e *jsEngine, log wasm.Signature, stub func(name string, s wasm.Signature) []byte) (*extension, uint32, error) {
	x := &extension{jsEngine: e, moved: map[uint32]uint32{}, typeCount: len(e.Types), added: map[wasm.Signature]uint32{}}
	var env []uint32
	for i, imp := range e.Imports {
		if imp.Module == moduleEnv {
			env = append(env, uint32(i))
			continue
		}
		x.moved[uint32(i)] = uint32(x.imported)
		x.addImport(imp.Module, imp.Name, imp.TypeIndex)
	}
	if len(env) == 0 {
		return nil, 0, errors.New("the engine has no imports from its wrapper")
	}
	logger := uint32(x.imported)
	x.addImport("hostd", "log", x.typeOf(log))
	for n, i := range env {
		imp := e.Imports[i]
		f := function{imp.TypeIndex, stub(imp.Name, e.Types[imp.TypeIndex])}
		if n < len(env)-1 {
			x.moved[i] = uint32(x.imported + len(x.before))
			x.before = append(x.before, f)
		} else {
			x.moved[i] = x.add(f)
		}
	}
	return x, logger, nil
}

func (x *extension) addImport(module, name string, typ uint32) {
	x.imports = append(appendName(appendName(x.imports, module), name), wasm.KindFunction)
	x.imports = binary.AppendUvarint(x.imports, uint64(typ))
	x.imported++
}

// typeOf returns the number of a signature.
func (x *extension) typeOf(s wasm.Signature) uint32 {
	for i, t := range x.Types {
		if t == s {
			return uint32(i)
		}
	}
	if i, ok := x.added[s]; ok {
		return i
	}
	i := uint32(x.typeCount)
	x.added[s] = i
	x.typeCount++
	x.types = append(x.types, wasm.TypeFunction)
	for _, values := range []string{s.Params, s.Results} {
		x.types = append(binary.AppendUvarint(x.types, uint64(len(values))), values...)
	}
	return i
}

// add adds a function and returns its number.
func (x *extension) add(f function) uint32 {
	x.after = append(x.after, f)
	return uint32(len(x.Imports)+len(x.Functions)+len(x.after)) - 1
}

// define adds a function of a signature.
func (x *extension) define(s wasm.Signature, body []byte) uint32 {
	return x.add(function{x.typeOf(s), body})
}

func (x *extension) export(name string, function uint32) {
	x.exported = append(appendName(x.exported, name), wasm.KindFunction)
	x.exported = binary.AppendUvarint(x.exported, uint64(function))
	x.exports++
}

// variable adds a global with the initial value 0 and returns its number.
func (x *extension) variable(typ byte) uint32 {
	constant := byte(wasm.OpI32Const)
	if typ == wasm.TypeI64 {
		constant = wasm.OpI64Const
	}
	x.globals = append(x.globals, typ, 1, constant, 0, wasm.OpEnd)
	x.globalCount++
	return uint32(x.Globals + x.globalCount - 1)
}

// place puts a function into the table and returns its index there.
func (x *extension) place(function uint32) uint32 {
	x.elements = append(x.elements, function)
	return x.Tables[0].Min + uint32(len(x.elements)) - 1
}

// base returns the start of the memory that the engine does not know about: its
// allocator grows the memory, and the new pages come after this memory.
func (x *extension) base() uint32 { return x.Memory.Min * wasm.PageBytes }

// write writes the module.
func (x *extension) write() ([]byte, error) {
	code, err := x.code()
	if err != nil {
		return nil, err
	}
	elements, err := x.elementSection()
	if err != nil {
		return nil, err
	}
	out := append(append([]byte{}, wasm.Magic...), wasm.Version...)
	for _, s := range []struct {
		id      byte
		payload []byte
	}{
		{wasm.SectionType, x.longer(wasm.SectionType, x.typeCount-len(x.Types), x.types)},
		{wasm.SectionImport, append(binary.AppendUvarint(nil, uint64(x.imported)), x.imports...)},
		{wasm.SectionFunction, x.functionSection()},
		{wasm.SectionTable, x.tableSection()},
		{wasm.SectionMemory, binary.AppendUvarint([]byte{1, 0}, uint64(x.Memory.Min+x.pages))},
		{wasm.SectionGlobal, x.longer(wasm.SectionGlobal, x.globalCount, x.globals)},
		{wasm.SectionExport, x.exportSection()},
		{wasm.SectionElement, elements},
		{wasm.SectionCode, code},
		{wasm.SectionData, x.dataSection()},
	} {
		out = append(out, s.id)
		out = append(binary.AppendUvarint(out, uint64(len(s.payload))), s.payload...)
	}
	return out, nil
}

// longer returns a section of the engine that is a list, with more items at its
// end.
func (x *extension) longer(id byte, count int, items []byte) []byte {
	old := x.Payload(id)
	c := wasm.NewCursor(old)
	before := uint32(0)
	if len(old) > 0 {
		before = c.U32("a number")
	}
	out := binary.AppendUvarint(nil, uint64(before)+uint64(count))
	return append(append(out, old[c.Pos:]...), items...)
}

func (x *extension) functionSection() []byte {
	out := binary.AppendUvarint(nil, uint64(len(x.before)+len(x.Functions)+len(x.after)))
	for _, f := range x.before {
		out = binary.AppendUvarint(out, uint64(f.typ))
	}
	for _, typ := range x.Functions {
		out = binary.AppendUvarint(out, uint64(typ))
	}
	for _, f := range x.after {
		out = binary.AppendUvarint(out, uint64(f.typ))
	}
	return out
}

func (x *extension) tableSection() []byte {
	size := uint64(x.Tables[0].Min) + uint64(len(x.elements))
	out := binary.AppendUvarint([]byte{1, wasm.TypeFuncref, 1}, size)
	return binary.AppendUvarint(out, size)
}

// exportSection exports the memory and the extension's exports. The engine's
// exports are dropped, because they are for its wrapper.
func (x *extension) exportSection() []byte {
	out := binary.AppendUvarint(nil, uint64(x.exports+1))
	out = append(appendName(out, "memory"), wasm.KindMemory, 0)
	return append(out, x.exported...)
}

// elementSection returns the engine's segments with the new function numbers,
// and one more segment.
func (x *extension) elementSection() ([]byte, error) {
	c := wasm.NewCursor(x.Payload(wasm.SectionElement))
	n := c.U32("a number")
	out := binary.AppendUvarint(nil, uint64(n)+1)
	for range n {
		if kind := c.U32("a kind"); c.OK() && kind != 0 {
			return nil, fmt.Errorf("the engine has an element segment of kind %d", kind)
		}
		var i wasm.Instruction
		if c.Next(&i); !c.OK() || i.Op != wasm.OpI32Const || c.Byte("an end") != wasm.OpEnd {
			return nil, errors.New("the engine has an element segment in a place that is not constant")
		}
		out = append(wasm.AppendSigned(append(out, 0, wasm.OpI32Const), i.Value), wasm.OpEnd)
		count := c.U32("a number")
		out = binary.AppendUvarint(out, uint64(count))
		for i := uint32(0); i < count && c.OK(); i++ {
			out = binary.AppendUvarint(out, uint64(x.number(c.U32("a function"))))
		}
	}
	if !c.OK() || c.Remaining() > 0 {
		return nil, errors.New("the engine's element segments are damaged")
	}
	out = wasm.AppendSigned(append(out, 0, wasm.OpI32Const), int64(x.Tables[0].Min))
	out = binary.AppendUvarint(append(out, wasm.OpEnd), uint64(len(x.elements)))
	for _, f := range x.elements {
		out = binary.AppendUvarint(out, uint64(f))
	}
	return out, nil
}

// number returns the new number of a function of the engine.
func (x *extension) number(function uint32) uint32 {
	if moved, ok := x.moved[function]; ok {
		return moved
	}
	return function
}

// code returns the code section, with patched calls of imports.
func (x *extension) code() ([]byte, error) {
	out := binary.AppendUvarint(nil, uint64(len(x.before)+len(x.Bodies)+len(x.after)))
	one := func(body []byte) { out = append(binary.AppendUvarint(out, uint64(len(body))), body...) }
	for _, f := range x.before {
		one(f.body)
	}
	for i, b := range x.Bodies {
		var body []byte
		at := b.Start
		for _, p := range x.patches[i] {
			body = append(body, x.Source[at:p.start]...)
			body = binary.AppendUvarint(append(body, wasm.OpCall), uint64(x.number(p.function)))
			c := x.Part(wasm.Stretch{Start: p.start + 1, End: b.End})
			if c.U32("a function"); !c.OK() {
				return nil, fmt.Errorf("function body %d of the engine is damaged", i)
			}
			at = c.Pos
		}
		one(append(body, x.Source[at:b.End]...))
	}
	for _, f := range x.after {
		one(f.body)
	}
	return out, nil
}

func (x *extension) dataSection() []byte {
	var items []byte
	for _, s := range x.data {
		items = wasm.AppendSigned(append(items, 0, wasm.OpI32Const), int64(int32(s.Offset)))
		items = binary.AppendUvarint(append(items, wasm.OpEnd), uint64(len(s.Data)))
		items = append(items, s.Data...)
	}
	return x.longer(wasm.SectionData, len(x.data), items)
}

func appendName(dst []byte, name string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(name))), name...)
}
