package guest

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

// elementsSection inserts an element section into a module, before its code.
func elementsSection(wasm []byte, segments ...[]byte) []byte {
	c := cursorAt(wasm, 8)
	for {
		at := c.Pos
		if c.Byte("an id") == sectionCode {
			return cat(wasm[:at], asmSection(sectionElement, vec(segments...)), wasm[at:])
		}
		c.Skip(c.U32("a size"), "a section")
	}
}

// functionElements returns n elements, each a reference to function 0.
func functionElements(n int) []byte { return cat(uleb(uint64(n)), make([]byte, n)) }

func passive(n int) []byte     { return cat([]byte{1, 0}, functionElements(n)) }
func declarative(n int) []byte { return cat([]byte{3, 0}, functionElements(n)) }
func active(n int) []byte      { return cat([]byte{0}, i32c(0), []byte{opEnd}, functionElements(n)) }
func expressions(n int) []byte {
	return cat([]byte{5, typeFuncref}, uleb(uint64(n)), bytes.Repeat([]byte{opRefFunc, 0, opEnd}, n))
}

// initializing is a guest whose query copies from each of n element segments.
func initializing(n int, tables ...[]byte) *testGuest {
	code := []byte{}
	for i := range n {
		code = cat(code, i32c(0), i32c(0), i32c(0), []byte{opMisc, miscTableInit}, uleb(uint64(i)), []byte{0})
	}
	return &testGuest{tables: tables, bodies: map[string][]byte{abi.ExportQuery: cat(code, i64c(0))}}
}

// TestElementsAreBounded checks that a module is rejected if its segments
// together have too many elements, whatever the kind of the segments.
func TestElementsAreBounded(t *testing.T) {
	wasm := (&testGuest{tables: [][]byte{tableOf(memoryBounds(1, 65536))}}).build()
	for name, segment := range map[string]func(int) []byte{"passive": passive, "declarative": declarative, "active": active, "expressions": expressions} {
		for _, n := range []int{65_535, 65_536} {
			_, fault := admit(elementsSection(wasm, segment(n), segment(1)), abi.DefaultLimits())
			if n == 65_535 && fault != nil {
				t.Errorf("%s: 65,536 elements: %v", name, fault)
			}
			if n == 65_536 && (fault == nil || fault.Error() != "module refused: element segment 1: 65537 elements in all segments up to here, limit 65536; split the module") {
				t.Errorf("%s: 65,537 elements: %v", name, fault)
			}
		}
	}
}

// TestUnusedElementsCostNothing checks that a segment from which no
// instruction copies costs an instance nothing, and that other segments arrive
// complete.
func TestUnusedElementsCostNothing(t *testing.T) {
	guest := initializing(2, tableOf(memoryBounds(8, 8)))
	m, fault := admit(elementsSection(guest.build(), passive(4), expressions(4), passive(60_000)), abi.DefaultLimits())
	if fault != nil {
		t.Fatal(fault)
	}
	got := sectionOf(t, m.Prepare(), sectionElement)
	want := vec(passive(4), expressions(4), declarative(60_000))
	if c := (wasm.NewCursor(got)); c.U32("segments") != 3 || len(got) != len(want) || got[1] != 1 || got[len(got)-60_000-5] != 3 {
		t.Errorf("prepared as %x...", got[:min(len(got), 40)])
	}
	if most := int64(tableBytes + 8*elementBytes + 3*segmentBytes + 8*(elementBytes+referenceBytes)); m.Describe().HeldBytes != most {
		t.Errorf("an instance is charged %d bytes, want %d", m.Describe().HeldBytes, most)
	}
}

// TestFunctionReferencesAreReused checks that code that creates references to
// functions in a loop gets the same references again, can call through them,
// and takes no memory.
func TestFunctionReferencesAreReused(t *testing.T) {
	loop := cat(i32c(0), op(opRefFunc, uleb(8)), op(opTableSet, uleb(0)),
		get(1), i32c(1), op(opI32Sub), op(opLocalTee, uleb(1)), op(opBrIf, uleb(0)))
	// The second argument of a query is the length of its input.
	guest := &testGuest{tables: [][]byte{tableOf(memoryBounds(1, 1))}, bodies: map[string][]byte{
		abi.ExportQuery: cat(i32c(1_000_000), op(opLocalSet, uleb(1)), op(opLoop, []byte{blockVoid}), loop, []byte{opEnd},
			i64c(0), i32c(0), op(opCallIndirect, uleb(8), uleb(0)), stateSpan()),
	}}
	wasm := elementsSection(guest.build(), declarative8(t, guest))
	bothEngines(t, func(t *testing.T, opts Options) {
		g := instantiate(t, mustCompile(t, newEngine(t, opts), wasm))
		if _, err := g.Load(0, 0, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Query(0, nil, Env{}); err != nil {
			t.Fatal(err)
		}
		before := liveHeap()
		for range 5 {
			if _, err := g.Query(0, nil, Env{}); err != nil {
				t.Fatal(err)
			}
		}
		if grown := liveHeap() - before; grown > 1<<20 {
			t.Errorf("5,000,000 references took %d bytes", grown)
		}
	})
}

// declarative8 declares hostd_drop, to which the code refers.
func declarative8(t *testing.T, guest *testGuest) []byte {
	t.Helper()
	if guest.contractIndex(abi.ExportDrop) != 8 {
		t.Fatal("function 8 is not hostd_drop")
	}
	return []byte{3, 0, 1, 8}
}

// liveHeap returns the heap bytes that remain after a garbage collection.
func liveHeap() int64 {
	var s runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// TestInstancesUseAtMostChargedMemory checks that fifty instances of a module
// with as many parts as admission allows hold no more memory than they are
// charged for.
func TestInstancesUseAtMostChargedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory, of which the race detector takes more")
	}
	table := tableOf(memoryBounds(65536, 65536))
	growth := tableOf(memoryBounds(0, 65536))
	repeated := func(item []byte, n int) (out [][]byte) {
		for range n {
			out = append(out, item)
		}
		return out
	}
	functions := func(n int, code func(int) []byte) (out []helper) {
		for i := range n {
			out = append(out, helper{code: code(i)})
		}
		return out
	}
	exports := func(n int, kind byte, index uint64) (out [][]byte) {
		for i := range n {
			out = append(out, cat(text(fmt.Sprintf("%0200d", i)), []byte{kind}, uleb(index)))
		}
		return out
	}
	grown := &testGuest{tables: repeated(growth, 8)}
	grow := []byte{}
	for i := range 8 {
		grow = cat(grow, op(opRefNull, []byte{typeFuncref}), i32c(65536), []byte{opMisc, miscTableGrow, byte(i)}, op(opDrop))
	}
	grown.bodies = map[string][]byte{abi.ExportQuery: cat(grow, i64c(0))}
	referring := &testGuest{helpers: functions(4000, func(i int) []byte { return cat(op(opRefFunc, uleb(uint64(9+i))), op(opDrop)) })}
	references := []byte{}
	for i := range 4000 {
		references = cat(references, uleb(uint64(9+i)))
	}
	segments := func(one []byte, n int) [][]byte { return repeated(one, n) }
	for _, c := range []struct {
		name string
		wasm []byte
	}{
		{"plain", (&testGuest{}).build()},
		{"active elements", elementsSection((&testGuest{tables: [][]byte{table}}).build(), active(65_536))},
		{"passive elements", elementsSection(initializing(1, table).build(), passive(65_536))},
		{"passive expressions", elementsSection(initializing(1, table).build(), expressions(65_536))},
		{"unused elements", elementsSection((&testGuest{tables: [][]byte{table}}).build(), passive(65_536))},
		{"element segments", elementsSection(initializing(4000, table).build(), segments(passive(16), 4096)...)},
		{"tables", (&testGuest{tables: repeated(table, 8)}).build()},
		{"tables that grow", grown.build()},
		{"globals", (&testGuest{globals: repeated(cat([]byte{typeI64, 1}, i64c(7), []byte{opEnd}), 10_000)}).build()},
		{"globals of references", (&testGuest{globals: repeated(cat([]byte{typeFuncref, 0, opRefFunc, 0, opEnd}), 10_000)}).build()},
		{"exports of functions", (&testGuest{exports: exports(4000, kindFunction, 0)}).build()},
		{"exports of tables", (&testGuest{tables: [][]byte{table}, exports: exports(4000, kindTable, 0)}).build()},
		{"functions", (&testGuest{helpers: functions(9000, func(int) []byte { return nil })}).build()},
		{"references by code", elementsSection(referring.build(), cat([]byte{3, 0}, uleb(4000), references))},
		{"passive data", (&testGuest{data: repeated(cat([]byte{1}, text("x")), 99_999)}).build()},
		{"data of memory 0 by name", (&testGuest{data: repeated(cat([]byte{2, 0}, i32c(0), []byte{opEnd}, text("")), 99_999)}).build()},
		{"data that the engine writes", (&testGuest{data: repeated(cat([]byte{0}, i32c(0), []byte{opEnd}, text("")), 99_999)}).build()},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEngine(t, Options{Interpreter: testing.Short()})
			m := mustCompile(t, e, c.wasm)
			instantiate(t, m) // the first instance also allocates memory that is kept
			before, charged := liveHeap(), e.Usage()
			const instances = 50
			all := make([]*Instance, instances)
			for i := range all {
				all[i] = instantiate(t, m)
				if _, err := all[i].Query(0, nil, Env{}); err != nil {
					t.Fatal(err)
				}
			}
			took, usage := liveHeap()-before, e.Usage()
			counted := usage.ChargedBytes - charged.ChargedBytes - (usage.MemoryBytes - charged.MemoryBytes)
			t.Logf("an instance takes %d bytes and is charged %d", took/instances, counted/instances)
			if took > counted {
				t.Errorf("%d instances took %d bytes besides their memory and are charged %d", instances, took, counted)
			}
			runtime.KeepAlive(all)
		})
	}
}

// TestOversizedFunctionNamesAreDropped checks that function names larger than any toolchain
// produces are dropped, as malformed ones are.
func TestOversizedFunctionNamesAreDropped(t *testing.T) {
	named := func(size int) []byte {
		var names [][]byte
		for i := range size / 10_000 {
			names = append(names, cat(uleb(uint64(i)), text(fmt.Sprintf("%010000d", i))))
		}
		payload := vec(names...)
		return (&testGuest{custom: [][]byte{asmSection(sectionCustom, cat(text(wasm.CustomNames), []byte{wasm.FunctionNamesPart}, uleb(uint64(len(payload))), payload))}}).build()
	}
	for size, kept := range map[int]bool{1 << 20: true, 15 << 20: false} {
		m, fault := admit(named(size), abi.DefaultLimits())
		if fault != nil {
			t.Fatal(fault)
		}
		if prepared := m.Prepare(); len(prepared) > size/2 != kept {
			t.Errorf("a module with %d bytes of names is prepared as %d bytes", size, len(prepared))
		}
	}
}
