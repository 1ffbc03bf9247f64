package guest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/tetratelabs/wazero/api"
)

const (
	imageAt    = 2 << 20 // address of the memory that the guest of these tests writes
	imageTurns = 40_000
	randomAt   = 3<<20 + 100
)

// initialized is a guest whose _initialize grows its memory, fills a part of
// it, and sets globals of each numeric type. A query returns the 8 bytes at the
// address given by the length of its input. A command overwrites the filled
// part with the length of its input.
func initialized(more ...[]byte) *testGuest {
	global := func(kind byte, initial []byte) []byte { return cat([]byte{kind, 1}, initial, []byte{opEnd}) }
	fill := func(local uint64, value []byte) []byte {
		return cat(i32c(0), op(opLocalSet, uleb(local)), op(opLoop, []byte{blockVoid}),
			get(local), value, op(0x36, []byte{2}, uleb(imageAt)),
			get(local), i32c(4), op(opI32Add), op(opLocalTee, uleb(local)), i32c(4*imageTurns), op(opI32LtU), op(opBrIf, uleb(0)), []byte{opEnd})
	}
	init := cat(i32c(30), op(opMemoryGrow, []byte{0}), op(opDrop), fill(0, get(0)),
		i32c(-5), op(0x24, uleb(0)), i64c(1<<40), op(0x24, uleb(1)),
		op(opF32Const, []byte{1, 2, 3, 4}), op(0x24, uleb(2)), op(opF64Const, []byte{1, 2, 3, 4, 5, 6, 7, 8}), op(0x24, uleb(3)), cat(more...))
	locals := vec(cat(uleb(1), []byte{typeI32}))
	guest := &testGuest{
		memory: memoryBounds(24, 200),
		globals: [][]byte{global(typeI32, i32c(1)), global(typeI64, i64c(2)), global(typeF32, op(opF32Const, make([]byte, 4))),
			global(typeF64, op(opF64Const, make([]byte, 8))), cat([]byte{typeI32, 0}, i32c(7), []byte{opEnd})},
		helpers: []helper{{locals: locals, code: init}},
		locals:  map[string][]byte{abi.ExportHandle: locals},
		bodies: map[string][]byte{
			abi.ExportHandle: cat(fill(2, get(1)), get(1), op(0x24, uleb(0)), i64c(0)),
			abi.ExportQuery:  cat(get(1), op(opI64Extend), i64c(32), op(0x86), i64c(8), op(opI64Add)),
		},
	}
	guest.exports = [][]byte{cat(text(abi.ExportInitialize), []byte{kindFunction}, uleb(guest.helperIndex(0)))}
	return guest
}

// withImage compiles a module that must get an image.
func withImage(t *testing.T, e *Engine, guest *testGuest) *Module {
	t.Helper()
	m := mustCompile(t, e, guest.build())
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has files in memory that can be sealed")
	}
	if m.image == nil {
		t.Fatal("the module has no image")
	}
	return m
}

// byHand returns an instance that runs its _initialize.
func byHand(t *testing.T, m *Module) *Instance {
	t.Helper()
	image := m.image
	m.image = nil
	defer func() { m.image = image }()
	return instantiate(t, m)
}

// stateOf returns all the state that calls of a guest can observe.
func stateOf(t *testing.T, g *Instance) string {
	t.Helper()
	memory, ok := g.guest.Memory().Read(0, g.guest.Memory().Size())
	if !ok || len(memory) != g.memory.length {
		t.Fatalf("memory has %d bytes of %d", len(memory), g.memory.length)
	}
	text := fmt.Sprintf("%d bytes, sum %x\n", len(memory), memory[:8]) + string(memory)
	for _, index := range g.module.mutable {
		text += fmt.Sprintf("\n%d %#x", index, g.guest.ExportedGlobal(wasm.GlobalName(index)).(api.MutableGlobal).Get())
	}
	return text
}

// TestImageMatchesInitializedInstance compares instances that begin with the
// image with an instance that runs its _initialize, before and after the same
// calls.
func TestImageMatchesInitializedInstance(t *testing.T) {
	bothEngines(t, func(t *testing.T, opts Options) {
		e := newEngine(t, opts)
		m := withImage(t, e, initialized())
		plain, first, second := byHand(t, m), instantiate(t, m), instantiate(t, m)
		if first.memory.image == nil || plain.memory.image != nil {
			t.Fatal("the test is wrong")
		}
		for _, g := range []*Instance{first, second} {
			if g.Fuel() != plain.Fuel() {
				t.Errorf("its start spent %d, want %d", g.Fuel(), plain.Fuel())
			}
			if stateOf(t, g) != stateOf(t, plain) {
				t.Error("it begins with a different state")
			}
		}
		for _, g := range []*Instance{plain, first} {
			if _, err := g.Handle(0, make([]byte, 77), Env{}); err != nil {
				t.Fatal(err)
			}
		}
		if stateOf(t, first) != stateOf(t, plain) || first.Fuel() != plain.Fuel() {
			t.Errorf("after a command it has a different state, for %d units, want %d", first.Fuel(), plain.Fuel())
		}
		if e.Usage().MemoryBytes != 3*int64(plain.memory.length) {
			t.Errorf("three instances of %d bytes are counted as %d", plain.memory.length, e.Usage().MemoryBytes)
		}
	})
}

// TestInstancesFromImageShareNothing checks that no instance sees what another
// instance writes, whether it was created before or after.
func TestInstancesFromImageShareNothing(t *testing.T) {
	m := withImage(t, newEngine(t, Options{}), initialized())
	before, writer := instantiate(t, m), instantiate(t, m)
	want := stateOf(t, before)
	if _, err := writer.Handle(0, make([]byte, 99), Env{}); err != nil {
		t.Fatal(err)
	}
	whole, _ := writer.guest.Memory().Read(0, uint32(writer.memory.length))
	for i := range whole {
		whole[i] = 0xa5
	}
	if stateOf(t, writer) == want {
		t.Fatal("the writer has written nothing")
	}
	for name, g := range map[string]*Instance{"before": before, "after": instantiate(t, m)} {
		if stateOf(t, g) != want {
			t.Errorf("an instance made %s sees writes of another instance", name)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if stateOf(t, before) != want {
		t.Error("closing an instance has changed another one")
	}
}

// TestModulesWithoutImage checks that each instance runs its _initialize if
// something cannot be copied, or if an image would save nothing.
func TestModulesWithoutImage(t *testing.T) {
	table := func(g *testGuest) *testGuest {
		g.tables = [][]byte{tableOf(memoryBounds(4, 8))}
		return g
	}
	global := func(kind byte, initial []byte) *testGuest {
		g := initialized()
		g.globals = append(g.globals, cat([]byte{kind, 1}, initial, []byte{opEnd}))
		return g
	}
	cheap := initialized()
	cheap.helpers[0].code = op(opNop)
	large := initialized(i32c(3), op(opMemoryGrow, []byte{0}), op(opDrop), i32c(imageMostBytes), i32c(1), op(0x36, aligned(2)))
	large.memory = memoryBounds(64, 200)
	dropping := initialized()
	dropping.exports = nil
	cases := map[string]*testGuest{
		"table.set":          table(initialized(i32c(1), op(opRefNull, []byte{typeFuncref}), op(opTableSet, uleb(0)))),
		"table.fill":         table(initialized(i32c(1), op(opRefNull, []byte{typeFuncref}), i32c(1), misc(miscTableFill, 0))),
		"table.grow":         table(initialized(op(opRefNull, []byte{typeFuncref}), i32c(1), misc(miscTableGrow, 0), op(opDrop))),
		"a vector":           global(typeV128, cat([]byte{opVector, opV128Const}, make([]byte, 16))),
		"a reference":        global(typeFuncref, op(opRefNull, []byte{typeFuncref})),
		"a refused grow":     initialized(i32c(110), op(opMemoryGrow, []byte{0}), op(opDrop)),
		"a large image":      large,
		"a cheap initialize": cheap,
		"nothing to run":     dropping,
	}
	for name, guest := range cases {
		opts := Options{}
		if name == "a refused grow" {
			opts.MemoryBytes = 150 * pageBytes
		}
		m := mustCompile(t, newEngine(t, opts), guest.build())
		if m.image != nil {
			t.Errorf("%s: the module has an image", name)
		}
		g := instantiate(t, m)
		if got, err := g.Query(0, make([]byte, manifestAt), Env{}); err != nil || string(got) != testManifest[:8] {
			t.Errorf("%s: the data is %q, %v", name, got, err)
		}
	}
}

// TestImageIsSkippedIfObservable checks that an instance runs its _initialize
// if it has less memory than the image, or a different clock or seed, which
// _initialize may have asked for.
func TestImageIsSkippedIfObservable(t *testing.T) {
	guest := initialized()
	guest.importing(abi.ImportWASI, "random_get")
	guest.helpers[0].code = cat(initialized().helpers[0].code, i32c(randomAt), i32c(8), call(0), op(opDrop))
	guest.exports = [][]byte{cat(text(abi.ExportInitialize), []byte{kindFunction}, uleb(guest.helperIndex(0)))}
	m := withImage(t, newEngine(t, Options{}), guest)
	drawn := func(g *Instance, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		out, _ := g.guest.Memory().Read(randomAt, 8)
		return bytes.Clone(out)
	}
	usual := drawn(m.Instantiate(t.Context()))
	if plain := byHand(t, m); !bytes.Equal(drawn(plain, nil), usual) || bytes.Equal(usual, make([]byte, 8)) {
		t.Error("the image has other random numbers than _initialize draws")
	}
	if other := drawn(m.InstantiateWith(t.Context(), InstanceOptions{pureClock: 1, pureSeed: 2})); bytes.Equal(other, usual) {
		t.Error("an instance with a different seed has the image's random numbers")
	}
	g, err := m.InstantiateWith(t.Context(), InstanceOptions{MemoryBytes: 40 * pageBytes})
	if err == nil {
		defer g.Close()
	}
	var fault *Fault
	if !errors.As(err, &fault) {
		t.Errorf("with too little memory for its _initialize: %v", err)
	}
}

// TestImagesAreReleased checks that a module has one file for all its
// instances, and that the file is released once the module is closed.
func TestImagesAreReleased(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	count := func() (files, mappings int) {
		names, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if to, _ := os.Readlink(name); strings.Contains(to, "hostd-image") {
				files++
			}
		}
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return files, bytes.Count(maps, []byte("hostd-image"))
	}
	e := newEngine(t, Options{})
	filesBefore, mappingsBefore := count()
	m, err := e.Compile(t.Context(), [32]byte{}, initialized().build())
	if err != nil {
		t.Fatal(err)
	}
	var guests []*Instance
	for range 20 {
		g, err := m.Instantiate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		guests = append(guests, g)
	}
	if files, mappings := count(); files != filesBefore+1 || mappings < mappingsBefore+20 {
		t.Errorf("%d files and %d mappings, want %d and %d", files, mappings, filesBefore+1, mappingsBefore+20)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for _, g := range guests {
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if files, mappings := count(); files != filesBefore || mappings != mappingsBefore {
		t.Errorf("%d files and %d mappings are left, there were %d and %d", files, mappings, filesBefore, mappingsBefore)
	}
}
