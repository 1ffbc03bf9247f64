package guest

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
)

func memoryBounds(min, max uint64) []byte { return cat([]byte{1}, uleb(min), uleb(max)) }

func tableOf(bounds []byte) []byte { return cat([]byte{typeFuncref}, bounds) }

// TestRefusedModules checks that each kind of invalid module is rejected with
// the right fault.
func TestRefusedModules(t *testing.T) {
	anyType := asmSection(sectionType, vec(asmType(sig("", ""))))
	withImport := func(module, name string, s signature) *testGuest {
		return &testGuest{imports: []imported{{module: module, name: name}}, wanted: []signature{s}}
	}
	valid := (&testGuest{}).build()
	command := &testGuest{omit: abi.ExportHandle}
	command.exports = [][]byte{cat(text("_start"), []byte{kindFunction}, uleb(command.contractIndex(abi.ExportHandle)))}
	locals := func(n uint64) *testGuest {
		return &testGuest{locals: map[string][]byte{abi.ExportQuery: vec(cat(uleb(n), []byte{typeI64}))}}
	}
	nops := func(n int) *testGuest {
		return &testGuest{bodies: map[string][]byte{abi.ExportDrop: bytes.Repeat(op(opNop), n)}}
	}
	loops := func(n int) *testGuest {
		return &testGuest{bodies: map[string][]byte{abi.ExportDrop: cat(bytes.Repeat(op(opLoop, []byte{blockVoid}), n), bytes.Repeat([]byte{opEnd}, n))}}
	}
	referring := &testGuest{helpers: []helper{{}}}
	referring.bodies = map[string][]byte{abi.ExportDrop: cat(op(opRefFunc, uleb(referring.helperIndex(0))), op(opDrop))}
	exporting := func(name string, kind byte, index uint64) *testGuest {
		return &testGuest{exports: [][]byte{cat(text(name), []byte{kind}, uleb(index))}}
	}
	tests := []struct {
		name   string
		wasm   []byte
		where  string // "" means that the module is admitted
		reason string
	}{
		{"empty", nil, "header", "not a WebAssembly module"},
		{"text format", []byte("(module (memory 1))"), "header", "not a WebAssembly module"},
		{"header alone", asmModule(), "memory section", "no memory"},
		{"component", []byte("\x00asm\x0d\x00\x01\x00"), "header", "component"},
		{"future version", []byte("\x00asm\x02\x00\x00\x00"), "header", "version"},
		{"cut off", valid[:len(valid)-1], "sections", "a section is truncated"},
		{"cut off in a header", valid[:9], "sections", "size is missing"},
		{"trailing bytes", cat(valid, []byte{99}), "sections", "unknown section 99"},
		{"section twice", asmModule(anyType, anyType), "sections", "duplicated or out of order"},
		{"sections out of order", asmModule(asmSection(sectionFunction, vec()), anyType), "sections", "out of order"},
		{"bytes left in a section", asmModule(asmSection(sectionType, cat(vec(), []byte{0}))), "type section", "1 extra bytes"},
		{"tag section", asmModule(asmSection(sectionTag, vec())), "sections", "exception handling"},
		{"number too long", asmModule([]byte{sectionType, 0x80, 0x80, 0x80, 0x80, 0x80, 0}), "sections", "not a 32-bit number"},
		{"number too large", asmModule([]byte{sectionType, 0xff, 0xff, 0xff, 0xff, 0x1f}), "sections", "not a 32-bit number"},
		{"too many types", asmModule(asmSection(sectionType, uleb(10_001))), "type section", "10001 types, limit 10000"},
		{"fewer types than announced", asmModule(asmSection(sectionType, uleb(9))), "type section", "fewer types"},
		{"struct type", asmModule(asmSection(sectionType, vec([]byte{0x5f, 0}))), "type 0", "form 0x5f"},
		{"reference parameter", asmModule(asmSection(sectionType, vec(asmType(sig("\x64", ""))))), "type 0", "0x64"},
		{"start section", (&testGuest{start: []byte{0}}).build(), "start section", "export _initialize"},

		{"import of another module", withImport("env", "abort", sig("", "")).build(), "import 0 (env.abort)", `"hostd" and "wasi_snapshot_preview1"`},
		{"reserved import", withImport("env", "__refuel", sig("", "")).build(), "import 0 (env.__refuel)", `"hostd" and "wasi_snapshot_preview1"`},
		{"unknown host function", withImport("hostd", "open", sig("", "")).build(), "import 0 (hostd.open)", "log, now and random"},
		{"socket", withImport("wasi_snapshot_preview1", "sock_accept", sig(i32+i32+i32, i32)).build(), "import 0 (wasi_snapshot_preview1.sock_accept)", "not offered"},
		{"import signature", withImport("hostd", "now", sig("", i32)).build(), "import 0 (hostd.now)", "has signature () -> (i32), must be () -> (i64)"},
		{"imported memory", asmModule(asmSection(sectionImport, vec(cat(text("env"), text("memory"), []byte{kindMemory, 0, 1})))), "import 0 (env.memory)", "functions only"},
		{"hostile import name", withImport("a\nb", strings.Repeat("x", 100), sig("", "")).build(), `import 0 ("a\nb".` + strings.Repeat("x", 64) + "...)", "offers only"},
		{"invalid UTF-8", withImport("\xff", "x", sig("", "")).build(), "import 0", "not valid UTF-8"},

		{"memory minimum over the limit", (&testGuest{memory: memoryBounds(1025, 2000)}).build(), "memory section", "starts at 1025 pages of 64 KiB, limit 1024"},
		{"memory maximum over the limit", (&testGuest{memory: memoryBounds(24, 1025)}).build(), "memory section", "maximum is 1025 pages"},
		{"memory at the limit", (&testGuest{memory: memoryBounds(24, 1024)}).build(), "", ""},
		{"memory maximum below minimum", (&testGuest{memory: memoryBounds(24, 23)}).build(), "memory section", "maximum that is below"},
		{"shared memory", (&testGuest{memory: cat([]byte{3}, uleb(24), uleb(24))}).build(), "memory section", "shared"},
		{"64-bit memory", (&testGuest{memory: cat([]byte{4}, uleb(24))}).build(), "memory section", "64-bit"},
		{"memory not exported", asmModule(anyType, asmSection(sectionMemory, vec([]byte{0, 1}))), "exports", `export it as "memory"`},
		{"table minimum over the limit", (&testGuest{tables: [][]byte{tableOf(cat([]byte{0}, uleb(1<<27)))}}).build(), "table 0", "limit 65536"},
		{"table maximum over the limit", (&testGuest{tables: [][]byte{tableOf(memoryBounds(1, 65537))}}).build(), "table 0", "1 to 65537 elements, limit 65536"},
		{"table at the limit", (&testGuest{tables: [][]byte{tableOf(memoryBounds(1, 65536))}}).build(), "", ""},
		{"too many tables", (&testGuest{tables: [][]byte{
			tableOf([]byte{0, 1}), tableOf([]byte{0, 1}), tableOf([]byte{0, 1}), tableOf([]byte{0, 1}), tableOf([]byte{0, 1}),
			tableOf([]byte{0, 1}), tableOf([]byte{0, 1}), tableOf([]byte{0, 1}), tableOf([]byte{0, 1})}}).build(), "table section", "9 tables, limit 8"},
		{"extended constant", (&testGuest{globals: [][]byte{cat([]byte{typeI32, 0}, i32c(1), i32c(2), op(opI32Add), []byte{opEnd})}}).build(), "global 0", "more than one instruction"},

		{"missing export", (&testGuest{omit: abi.ExportSnapshot}).build(), "exports", "hostd_snapshot is missing; export it with signature (i64) -> (i64)"},
		{"program instead of a library", command.build(), "exports", "-buildmode=c-shared"},
		{"export signature", (&testGuest{types: map[string]signature{abi.ExportDrop: sig(i32, "")}}).build(), "export hostd_drop", "has signature (i32) -> (), must be (i64) -> ()"},
		{"export of the wrong kind", (&testGuest{omit: abi.ExportDrop, exports: [][]byte{cat(text(abi.ExportDrop), []byte{kindMemory, 0})}}).build(), "export hostd_drop", "must be a function, but is a memory"},
		{"optional export", exporting(abi.ExportUpcast, kindFunction, 8).build(), "export hostd_upcast", "must be (i32, i32) -> (i64)"},
		{"_initialize with a parameter", exporting("_initialize", kindFunction, 8).build(), "export _initialize", "must be () -> ()"},
		{"name exported twice", exporting("memory", kindMemory, 0).build(), "export 10 (memory)", "exported twice"},
		{"reserved fuel export", exporting("__fuel_left", kindFunction, 0).build(), "export 10 (__fuel_left)", "reserved"},
		{"reserved global export", exporting("__g0", kindFunction, 0).build(), "export 10 (__g0)", "reserved"},
		{"toolchain's own export", exporting("__global_base", kindFunction, 0).build(), "", ""},
		{"export of nothing", exporting("x", kindFunction, 9).build(), "export 10 (x)", "no function 9"},
		{"export of an unknown kind", exporting("x", 9, 0).build(), "export 10 (x)", "unknown kind"},

		{"locals at the limit", locals(512).build(), "", ""},
		{"locals over the limit", locals(513).build(), "function body 6", "more than 512 locals"},
		{"locals that overflow", (&testGuest{locals: map[string][]byte{abi.ExportQuery: vec(
			cat(uleb(1<<32-1), []byte{typeI64}), cat(uleb(1<<32-1), []byte{typeI64}))}}).build(), "function body 6", "more than 512 locals"},
		{"body at the limit", nops(64<<10 - 2).build(), "", ""},
		{"body over the limit", nops(64<<10 - 1).build(), "function body 8", "65537 bytes, limit 65536"},
		{"loops nested to the limit", loops(1000).build(), "", ""},
		{"loops nested over the limit", loops(1001).build(), "function body 8", "loops nest deeper than 1000"},
		{"loops beside each other", (&testGuest{bodies: map[string][]byte{abi.ExportDrop: bytes.Repeat(cat(op(opLoop, []byte{blockVoid}), []byte{opEnd}), 500)}}).build(), "", ""},
		{"reference to a function that is named nowhere else", referring.build(), "function body 8", "reference to function 9, which no export"},
		{"reference to a function that a segment names", elementsSection(referring.build(), []byte{3, 0, 1, 9}), "", ""},
		{"body without an end", asmModule(anyType, asmSection(sectionFunction, vec([]byte{0})),
			asmSection(sectionMemory, vec([]byte{0, 1})), asmSection(sectionCode, vec([]byte{2, 0, opNop}))), "function body 0", "an instruction is missing"},
		{"declared and not defined", asmModule(anyType, asmSection(sectionFunction, vec([]byte{0})),
			asmSection(sectionMemory, vec([]byte{0, 1}))), "code section", "it declares 1 functions, but has 0 bodies"},
		{"function of no type", asmModule(anyType, asmSection(sectionFunction, vec([]byte{1}))), "function section", "no type 1"},
		{"data count differs", asmModule(anyType, asmSection(sectionMemory, vec([]byte{0, 1})), asmSection(sectionDataCount, uleb(1)),
			asmSection(sectionData, vec())), "data section", "1 data segments are announced, but there are 0"},
		{"malformed name section is ignored", (&testGuest{custom: [][]byte{asmSection(sectionCustom, cat(text("name"),
			[]byte{1, 5}, uleb(1<<32-1)))}}).build(), "", ""},
	}
	e := newEngine(t, Options{})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := e.Admit(test.wasm)
			var refused *AdmissionError
			switch {
			case test.where == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case test.where == "":
				mustCompile(t, e, test.wasm)
			case !errors.As(err, &refused):
				t.Fatalf("got %v, want an *AdmissionError", err)
			case refused.Where != test.where || !strings.Contains(refused.Reason, test.reason):
				t.Errorf("got %q: %q, want %q: %q", refused.Where, refused.Reason, test.where, test.reason)
			}
		})
	}
}

func TestModuleSizeLimit(t *testing.T) {
	limits := abi.DefaultLimits()
	wasm := (&testGuest{}).build()
	limits.ModuleBytes = len(wasm)
	if _, err := newEngine(t, Options{Limits: limits}).Admit(wasm); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	limits.ModuleBytes--
	if _, err := newEngine(t, Options{Limits: limits}).Admit(wasm); err == nil || !strings.Contains(err.Error(), "size") {
		t.Errorf("over the limit: %v", err)
	}
}

// TestCompileRejectsInvalidCode checks that modules of a valid shape are
// rejected if their code or their manifest is invalid.
func TestCompileRejectsInvalidCode(t *testing.T) {
	body := func(export string, code []byte) []byte {
		return (&testGuest{bodies: map[string][]byte{export: code}}).build()
	}
	tests := []struct {
		name, where, reason string
		wasm                []byte
	}{
		{"stack mismatch", "code", "", body(abi.ExportDrop, i32c(1))},
		{"unknown instruction", "function body 8", "instruction 0xff", body(abi.ExportDrop, []byte{0xff})},
		{"call of nothing", "function body 8", "no function 1000", body(abi.ExportDrop, call(1000))},
		{"tail call", "function body 8", "tail calls", body(abi.ExportDrop, op(0x12, uleb(8)))},
		{"atomic", "function body 8", "threads", body(abi.ExportDrop, []byte{0xfe, 0x03, 0x00})},
		{"version 2 of the contract", "export hostd_abi", "returns 2", body(abi.ExportABI, i32c(2))},
		{"manifest that is no JSON", "manifest", "", (&testGuest{manifest: "{"}).build()},
		{"manifest without types", "manifest", "entityTypes", (&testGuest{manifest: `{"abi":1,"name":"x","version":"1"}`}).build()},
	}
	e := newEngine(t, Options{})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := e.Compile(t.Context(), [32]byte{}, test.wasm)
			var refused *AdmissionError
			if !errors.As(err, &refused) || refused.Where != test.where || !strings.Contains(refused.Reason, test.reason) {
				t.Errorf("got %v, want %q: %q", err, test.where, test.reason)
			}
		})
	}
	for name, wasm := range map[string][]byte{
		"manifest outside memory": body(abi.ExportDescribe, spanc(24*pageBytes-1, 2)),
		"manifest over its limit": body(abi.ExportDescribe, spanc(0, uint32(abi.DefaultLimits().ManifestBytes)+1)),
		"trap in hostd_describe":  body(abi.ExportDescribe, op(opUnreachable)),
		"trap in hostd_abi":       body(abi.ExportABI, op(opUnreachable)),
		"empty manifest":          body(abi.ExportDescribe, i64c(0)),
		"time asked by _describe": (&testGuest{bodies: map[string][]byte{abi.ExportDescribe: call(0)}}).importing("hostd", "now").build(),
	} {
		if _, err := e.Compile(t.Context(), [32]byte{}, wasm); err == nil {
			t.Errorf("%s: compiled", name)
		}
		if used := e.MemoryBytes(); used != 0 {
			t.Errorf("%s: %d bytes of memory are still counted", name, used)
		}
	}
}

// TestMissingMaximaAreWritten checks that neither memory nor table can grow
// beyond the node's limits if the module declares no maximum.
func TestMissingMaximaAreWritten(t *testing.T) {
	grow := cat(i32c(0x7fff), op(opMemoryGrow, []byte{0}), op(opDrop),
		op(0xd0, []byte{typeFuncref}), i32c(1<<20), []byte{0xfc, 15, 0}, op(opI64Extend)) // table.grow returns -1
	guest := &testGuest{
		tables: [][]byte{tableOf([]byte{0, 4})},
		bodies: map[string][]byte{abi.ExportHandle: cat(stateAddress(), grow, op(opI64Store, aligned(3)), stateSpan())},
	}
	m, err := admit(guest.build(), abi.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	prepared := m.Prepare()
	if got, want := sectionOf(t, prepared, sectionMemory), vec(memoryBounds(24, 1024)); !bytes.Equal(got, want) {
		t.Errorf("the memory section is % x, want % x", got, want)
	}
	if got, want := sectionOf(t, prepared, sectionTable), vec(tableOf(memoryBounds(4, 65536))); !bytes.Equal(got, want) {
		t.Errorf("the table section is % x, want % x", got, want)
	}
	if !bytes.Equal(m.Prepare(), prepared) {
		t.Error("preparing twice gives two modules")
	}
	bothEngines(t, func(t *testing.T, opts Options) {
		g := start(t, opts, guest)
		out, err := g.Handle(0, nil, Env{})
		if err != nil || !bytes.Equal(out, []byte{255, 255, 255, 255, 0, 0, 0, 0}) {
			t.Errorf("table.grow gave % x, %v; want -1", out, err)
		}
		if got := g.MemoryBytes(); got != 24*pageBytes {
			t.Errorf("memory grew to %d", got)
		}
	})
}

// TestFunctionNamesAreKept checks that function names are kept for traps, and
// that all other custom sections are dropped.
func TestFunctionNamesAreKept(t *testing.T) {
	names := vec(cat(uleb(8), text("forget_it")))
	guest := &testGuest{
		bodies: map[string][]byte{abi.ExportDrop: op(opUnreachable)},
		custom: [][]byte{
			asmSection(sectionCustom, cat(text("name"), []byte{0}, uleb(4), text("mod"), []byte{1}, uleb(uint64(len(names))), names)),
			asmSection(sectionCustom, cat(text("producers"), []byte("secret"))),
		},
	}
	m, err := admit(guest.build(), abi.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(m.Prepare(), []byte("secret")) {
		t.Error("a custom section was kept")
	}
	g := start(t, Options{}, guest)
	var fault *Fault
	if err := g.Drop(0); !errors.As(err, &fault) || len(fault.Trace) != 1 || !strings.Contains(fault.Trace[0], "forget_it") {
		t.Errorf("the trap does not name the function: %+v", err)
	}
}
