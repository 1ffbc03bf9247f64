package guest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

// hostileModule is a module made to do harm before it is ever called.
type hostileModule struct {
	name  string
	wasm  []byte
	where string // place of the rejection; "" if accepted; "trial" and "manifest" if the child rejects it
	text  string // text that the reason contains
}

// coded returns modules whose hostd_drop has code that admission rejects by
// name.
func coded() (out []hostileModule) {
	for _, c := range []struct {
		name string
		code []byte
		text string
	}{
		{"memory.atomic.wait32", []byte{0xfe, 0x01, 2, 0}, "atomic instructions"},
		{"i32.atomic.load", []byte{0xfe, 0x10, 2, 0}, "atomic instructions"},
		{"return_call", []byte{0x12, 8}, "tail calls"},
		{"return_call_indirect", []byte{0x13, 0, 0}, "tail calls"},
		{"throw", []byte{0x08, 0}, "instruction 0x08"},
		{"try_table", []byte{0x1f, blockVoid, 0, opEnd}, "instruction 0x1f"},
		{"try", []byte{0x06, blockVoid, opEnd}, "instruction 0x06"},
		{"call_ref", []byte{0x14, 0}, "instruction 0x14"},
		{"struct.new", []byte{0xfb, 0, 0}, "instruction 0xfb"},
		{"ref.as_non_null", []byte{0xd4}, "instruction 0xd4"},
		{"i64.add128", []byte{opMisc, 0x13}, "instruction 0xfc 0x13"},
		{"i8x16.relaxed_swizzle", []byte{0xfd, 0x80, 0x02}, "relaxed SIMD"},
	} {
		guest := &testGuest{bodies: map[string][]byte{abi.ExportDrop: c.code}}
		out = append(out, hostileModule{c.name, guest.build(), "function body 8", c.text})
	}
	return out
}

// unshapely returns modules that are rejected because of their sections.
func unshapely() []hostileModule {
	importing := func(kind byte, bounds ...byte) []byte {
		return asmModule(asmSection(sectionImport, vec(cat(text("env"), text("x"), []byte{kind}, bounds))))
	}
	memory := func(bounds ...byte) []byte { return (&testGuest{memory: bounds}).build() }
	form := func(form ...byte) []byte { return asmModule(asmSection(sectionType, vec(form))) }
	counted := func(id byte, n uint64) []byte { return asmModule(asmSection(id, uleb(n))) }
	twoMemories := asmModule(asmSection(sectionMemory, vec([]byte{0, 1}, []byte{0, 1})))
	return []hostileModule{
		{"imported table", importing(kindTable, typeFuncref, 0, 1), "import 0 (env.x)", "functions only"},
		{"imported memory", importing(kindMemory, 0, 1), "import 0 (env.x)", "functions only"},
		{"imported global", importing(kindGlobal, typeI32, 0), "import 0 (env.x)", "functions only"},
		{"imported tag", importing(4, 0, 0), "import 0 (env.x)", "functions only"},
		{"two memories", twoMemories, "memory section", "2 memories, limit 1"},
		{"64-bit memory", memory(4, 1), "memory section", "64-bit"},
		{"64-bit memory with a maximum", memory(5, 1, 2), "memory section", "64-bit"},
		{"shared memory", memory(3, 1, 2), "memory section", "shared"},
		{"memory of other pages", memory(8, 24, 0), "memory section", "unknown kind of bounds"},
		{"group of recursive types", form(0x4e, 1, typeFunction, 0, 0), "type 0", "form 0x4e"},
		{"array type", form(0x5e, typeI32, 0), "type 0", "form 0x5e"},
		{"struct type", form(0x5f, 0), "type 0", "form 0x5f"},
		{"start function", (&testGuest{start: []byte{0}}).build(), "start section", "_initialize"},
		{"100,002 data segments", asmModule(asmSection(sectionData, uleb(100_002))), "data section", "limit 100000"},
		{"1,000,000 functions", asmModule(asmSection(sectionType, vec(asmType(sig("", "")))), asmSection(sectionFunction, uleb(1_000_000))), "function section", "limit 32768"},
		{"32,709 types", counted(sectionType, 32_709), "type section", "limit 10000"},
		{"a number that is too long", asmModule([]byte{sectionType, 0x81, 0x80, 0x80, 0x80, 0x80, 0}), "sections", "not a 32-bit number"},
		{"15,600,000 passive elements", elementsSection((&testGuest{}).build(), passive(15_600_000)), "element segment 0", "limit 65536"},
	}
}

// heavy returns modules that would take long to compile, or much memory to
// hold.
func heavy() []hostileModule {
	void := []byte{blockVoid}
	ifs := cat(bytes.Repeat(cat(i32c(1), op(opIf, void)), 9_900), bytes.Repeat([]byte{opEnd}, 9_900))
	loops := cat(bytes.Repeat(op(opLoop, void), 9_900), bytes.Repeat([]byte{opEnd}, 9_900))
	table := cat(i32c(1), op(opBrTable, uleb(60_000), make([]byte, 60_001)))
	labels := [][]byte{}
	for i := range 9_000 {
		labels = append(labels, uleb(uint64(i)))
	}
	cases := cat(bytes.Repeat(op(opBlock, void), 9_000), i32c(1), op(opBrTable, vec(labels...), uleb(0)), bytes.Repeat([]byte{opEnd}, 9_000))
	live := []byte{}
	for i := range 3_000 {
		live = cat(live, get(uint64(i%512)), op(opI32WrapI64), op(opIf, void), get(uint64(i%512)), op(opLocalSet, uleb(uint64(i*7%512))), []byte{opEnd})
	}
	many := func(n int, code, locals []byte) []byte {
		guest := &testGuest{}
		for range n {
			guest.helpers = append(guest.helpers, helper{code: code, locals: locals})
		}
		return guest.build()
	}
	tables := [][]byte{}
	for range 8 {
		tables = append(tables, tableOf(memoryBounds(65_536, 65_536)))
	}
	exports := [][]byte{}
	for i := range 4_080 {
		exports = append(exports, cat(text(fmt.Sprintf("%01000d", i)), []byte{kindFunction, 0}))
	}
	custom := func(size int) []byte { return asmSection(sectionCustom, cat(text("x"), make([]byte, size))) }
	const together = "branches, loops and locals"
	return []hostileModule{
		{"a br_table of 60,000 labels", many(1, table, nil), "", ""},
		{"br_tables of 60,000 labels", many(250, table, nil), "function body 16", together},
		{"a switch of 9,000 cases", many(1, cases, nil), "", ""},
		{"switches of 9,000 cases", many(200, cases, nil), "function body 17", together},
		{"9,900 nested loops", many(1, loops, nil), "function body 9", "loops nest deeper than 1000"},
		{"9,900 nested loops in 50 functions", many(50, loops, nil), "function body 9", "loops nest deeper than 1000"},
		{"9,900 nested ifs in 200 functions", many(200, ifs, nil), "function body 19", together},
		{"512 locals that live in 250 functions", many(250, live, vec(cat(uleb(512), []byte{typeI64}))), "function body 23", together},
		{"8 full tables", (&testGuest{tables: tables}).build(), "", ""},
		{"4,080 exports of 1 KB", (&testGuest{exports: exports}).build(), "", ""},
		{"a custom section of 15 MB", (&testGuest{custom: [][]byte{custom(15 << 20)}}).build(), "", ""},
		{"3,000,000 custom sections", (&testGuest{custom: [][]byte{bytes.Repeat(custom(0), 3_000_000)}}).build(), "", ""},
		{"SIMD", (&testGuest{bodies: map[string][]byte{abi.ExportDrop: cat([]byte{0xfd, 12}, make([]byte, 16), []byte{0xfd, 0x15, 3}, op(opDrop))}}).build(), "", ""},
	}
}

// misplaced returns modules whose data is at invalid or unusual addresses.
func misplaced() []hostileModule {
	at := func(offset int32, size int) *testGuest {
		return &testGuest{data: [][]byte{cat([]byte{0}, i32c(offset), []byte{opEnd}, text(strings.Repeat("x", size)))}}
	}
	empty := at(0, 1)
	empty.memory = memoryBounds(0, 1)
	overlapping, strewn := &testGuest{}, &testGuest{}
	random := rand.New(rand.NewPCG(1, 1))
	for range 99_999 {
		one := func(offset int32) []byte { return cat([]byte{0}, i32c(offset), []byte{opEnd}, text("x")) }
		overlapping.data = append(overlapping.data, one(scratchAt))
		strewn.data = append(strewn.data, one(int32(random.IntN(16<<10))))
	}
	passive := &testGuest{}
	for range 2 {
		passive.data = append(passive.data, cat([]byte{1}, text(strings.Repeat("x", 1<<20))))
	}
	const outside = "out of bounds memory access"
	return []hostileModule{
		{"16 bytes at 2^32-1", at(-1, 16).build(), "trial", outside},
		{"nothing at 2^32-1", at(-1, 0).build(), "trial", outside},
		{"a byte past the end", at(24*pageBytes, 1).build(), "trial", outside},
		{"a byte of a memory of none", empty.build(), "trial", outside},
		{"99,999 segments over each other", overlapping.build(), "", ""},
		{"99,999 segments over the manifest", strewn.build(), "manifest", ""},
		{"2 MiB of passive data", passive.build(), "", ""},
	}
}

// describing returns modules whose hostd_describe is at fault.
func describing() []hostileModule {
	body := func(code []byte) []byte {
		return (&testGuest{bodies: map[string][]byte{abi.ExportDescribe: code}}).build()
	}
	arrays := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	return []hostileModule{
		{"a describe that never ends", body(cat(op(opLoop, []byte{blockVoid}), op(opBr, uleb(0)), []byte{opEnd}, i64c(0))), "trial", "fuel"},
		{"a describe that traps", body(op(opUnreachable)), "trial", "unreachable"},
		{"a manifest beyond 4 GiB", body(spanc(1<<32-1, 64)), "trial", "inside memory"},
		{"a manifest of 30,000 nested arrays", (&testGuest{manifest: arrays(30_000)}).build(), "manifest", "not valid JSON"},
	}
}

// TestHostileModules checks that each harmful module is rejected by name before
// it is compiled, is rejected by its trial in the child, or is accepted and can
// be called. After each module another guest in the same engine must still
// answer, and the engine must keep nothing of a rejected module.
func TestHostileModules(t *testing.T) {
	if testing.Short() {
		t.Skip("short: modules are compiled and called one after the other")
	}
	e := newEngine(t, childOptions(t, "compile-child"))
	neighbour := instantiate(t, mustCompile(t, e, (&testGuest{}).build()))
	held := e.Usage()
	for _, modules := range [][]hostileModule{coded(), unshapely(), heavy(), misplaced(), describing()} {
		for _, m := range modules {
			t.Run(m.name, func(t *testing.T) {
				admitted := m.where == "" || m.where == "trial" || m.where == "manifest"
				if _, err := e.Admit(m.wasm); admitted != (err == nil) {
					t.Errorf("admission says %v", err)
				}
				compiled, err := e.Compile(t.Context(), [32]byte{}, m.wasm)
				var refused *AdmissionError
				switch {
				case m.where == "" && err != nil:
					t.Fatal(err)
				case m.where == "":
					callOnce(t, compiled)
				case err == nil:
					compiled.Close()
					t.Error("it was accepted")
				case !errors.As(err, &refused) || refused.Where != m.where || !strings.Contains(refused.Reason, m.text):
					t.Errorf("got %v, want %q: %q", err, m.where, m.text)
				}
			})
			if _, err := neighbour.Handle(0, []byte("x"), Env{}); err != nil {
				t.Fatalf("the neighbour of %s: %v", m.name, err)
			}
			if now := e.Usage(); now != held {
				t.Fatalf("%s leaves %+v of %+v", m.name, now, held)
			}
		}
	}
}

// callOnce creates an instance of a module, calls it and closes both.
func callOnce(t *testing.T, m *Module) {
	t.Helper()
	g, err := m.Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Handle(0, []byte("x"), Env{}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(g.Close(), m.Close()); err != nil {
		t.Error(err)
	}
}

// TestHostileNamesAreContained checks that a function name with escapes and a
// newline does not break out of a single line of text.
func TestHostileNamesAreContained(t *testing.T) {
	names := vec(cat(uleb(8), text("a\x1b[31m\nlevel=ERROR msg=forged")))
	guest := &testGuest{
		bodies: map[string][]byte{abi.ExportDrop: op(opUnreachable)},
		custom: [][]byte{asmSection(sectionCustom, cat(text(wasm.CustomNames), []byte{wasm.FunctionNamesPart}, uleb(uint64(len(names))), names))},
	}
	var fault *Fault
	if err := start(t, Options{}, guest).Drop(0); !errors.As(err, &fault) || fault.Kind != FaultTrap || strings.ContainsAny(fault.Error(), "\n\x1b") {
		t.Errorf("got %q", err)
	}
}

// hostileCall is a guest whose hostd_handle does harm.
type hostileCall struct {
	name string
	wasm []byte
	ends string // kind of the fault; "" if the call is answered
}

// calls returns guests that make forbidden calls or never end.
func calls() []hostileCall {
	void := []byte{blockVoid}
	handling := func(code ...[]byte) *testGuest {
		return &testGuest{bodies: map[string][]byte{abi.ExportHandle: cat(code...)}}
	}
	own := func(export string) []byte { return call((&testGuest{}).contractIndex(export)) }
	forever := func(code ...[]byte) []byte {
		return cat(op(opLoop, void), cat(code...), op(opBr, uleb(0)), []byte{opEnd}, i64c(0))
	}
	polls := func(subscriptions int32) *testGuest {
		return handling(i32c(scratchAt), i32c(scratchAt), i32c(subscriptions), i32c(scratchAt), call(0), op(opDrop), stateSpan()).
			importing(abi.ImportWASI, "poll_oneoff")
	}
	indirect := elementsSection((&testGuest{tables: [][]byte{tableOf(memoryBounds(1, 1))}, bodies: map[string][]byte{
		abi.ExportHandle: cat(get(0), get(1), i32c(0), op(opCallIndirect, uleb(5), uleb(0)))}}).build(), cat([]byte{0}, i32c(0), []byte{opEnd}, []byte{1, 5}))
	growing := handling()
	for table := range 8 {
		growing.tables = append(growing.tables, tableOf(memoryBounds(0, 65_536)))
		growing.bodies[abi.ExportHandle] = cat(growing.bodies[abi.ExportHandle],
			op(opRefNull, []byte{typeFuncref}), i32c(65_535), []byte{opMisc, miscTableGrow, byte(table)}, op(opDrop))
	}
	growing.bodies[abi.ExportHandle] = cat(growing.bodies[abi.ExportHandle], stateSpan())
	grow := cat(i32c(62<<20/pageBytes-24), op(opMemoryGrow, []byte{0}), op(opDrop))
	return []hostileCall{
		{"calls its own hostd_handle", handling(get(0), get(1), own(abi.ExportHandle)).build(), "stack spent"},
		{"calls itself by a table", indirect, "stack spent"},
		{"calls its own hostd_drop and hostd_load", handling(get(0), own(abi.ExportDrop), i32c(0), get(0), i32c(0), own(abi.ExportLoad), op(opDrop), stateSpan()).build(), ""},
		{"calls its own hostd_describe and hostd_buffer", handling(i32c(1<<20), own(abi.ExportBuffer), op(opDrop), own(abi.ExportDescribe)).build(), ""},
		{"calls its own hostd_apply for ever", handling(forever(get(0), i32c(0), own(abi.ExportApply), op(opDrop))).build(), "fuel spent"},
		{"exits with 0", handling(i32c(0), call(0), i64c(0)).importing(abi.ImportWASI, "proc_exit").build(), "trap"},
		{"grows to 62 MB", handling(grow, stateSpan()).build(), ""},
		{"grows to 62 MB and traps", handling(grow, op(opUnreachable)).build(), "trap"},
		{"grows 8 tables to 65,535", growing.build(), ""},
		{"asks for randomness for ever", handling(forever(i32c(scratchAt), i32c(8), call(0), op(opDrop))).importing(abi.ImportWASI, "random_get").build(), "fuel spent"},
		{"asks for much randomness for ever", handling(forever(i32c(1<<20), i32c(64<<10), call(0), op(opDrop))).importing(abi.ImportWASI, "random_get").build(), "fuel spent"},
		{"polls -1 descriptors", polls(-1).build(), ""},
		{"polls 20,000 descriptors", polls(20_000).build(), ""},
	}
}

// TestHostileCalls checks that a harmful call is answered or ends with a fault.
// After each call another guest in the same engine must still answer, and the
// engine must keep nothing of the closed guest.
func TestHostileCalls(t *testing.T) {
	bothEngines(t, func(t *testing.T, opts Options) {
		opts.Limits = abi.DefaultLimits()
		opts.Limits.CommandFuel = 20_000_000
		e := newEngine(t, opts)
		neighbour := instantiate(t, mustCompile(t, e, (&testGuest{}).build()))
		held := e.Usage()
		for _, c := range calls() {
			m, err := e.Compile(t.Context(), [32]byte{}, c.wasm)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			g, err := m.Instantiate(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			_, err = g.Handle(0, []byte("x"), Env{})
			var fault *Fault
			if c.ends == "" && err != nil || c.ends != "" && (!errors.As(err, &fault) || fault.Kind.String() != c.ends) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.ends)
			}
			if _, err := neighbour.Handle(0, []byte("x"), Env{}); err != nil {
				t.Fatalf("the neighbour of one that %s: %v", c.name, err)
			}
			if err := errors.Join(g.Close(), m.Close()); err != nil {
				t.Error(err)
			}
			if now := e.Usage(); now != held {
				t.Fatalf("one that %s leaves %+v of %+v", c.name, now, held)
			}
		}
	})
}
