package guest

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/hostd/hostd/abi"
)

// growing is a guest whose commands grow memory by a page and reply with the
// result of memory.grow.
func growing(tables ...[]byte) *testGuest {
	return &testGuest{tables: tables, bodies: map[string][]byte{abi.ExportHandle: cat(
		stateAddress(), i32c(1), op(opMemoryGrow, []byte{0}), op(opI64Extend), op(opI64Store, aligned(3)), stateSpan())}}
}

// grow lets a guest grow until that fails, and returns the number of added
// pages.
func grow(t *testing.T, g *Instance) (pages int) {
	t.Helper()
	for {
		out, err := g.Handle(0, nil, Env{})
		if err != nil {
			t.Fatal(err)
		}
		if int32(binary.LittleEndian.Uint32(out)) == -1 {
			return pages
		}
		pages++
	}
}

func TestInstanceMemoryLimit(t *testing.T) {
	m := mustCompile(t, newEngine(t, Options{}), growing().build())
	for limit, want := range map[int64]int{24 * pageBytes: 0, 25*pageBytes - 1: 0, 25 * pageBytes: 1, 30 * pageBytes: 6} {
		g, err := m.InstantiateWith(t.Context(), InstanceOptions{MemoryBytes: limit})
		if err != nil {
			t.Fatal(err)
		}
		if got := grow(t, g); got != want {
			t.Errorf("limit %d: grew by %d pages, want %d", limit, got, want)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := m.InstantiateWith(t.Context(), InstanceOptions{MemoryBytes: 24*pageBytes - 1}); !errors.Is(err, errMemoryLimit) {
		t.Errorf("below the module's minimum: %v", err)
	}
}

// TestUsageCountsMemoryAndTables checks that Usage counts the memory and the
// tables of instances, whether or not the tables can grow.
func TestUsageCountsMemoryAndTables(t *testing.T) {
	growsTable := cat(op(opRefNull, []byte{typeFuncref}), i32c(1), []byte{opMisc, miscTableGrow, 0}, op(opI64Extend))
	fixed, growable := growing(tableOf(memoryBounds(100, 1000))), growing(tableOf(memoryBounds(100, 1000)))
	growable.bodies[abi.ExportQuery] = growsTable
	for _, test := range []struct {
		guest  *testGuest
		tables int64
	}{{fixed, tableBytes + 100*elementBytes}, {growable, tableBytes + 1000*elementBytes}} {
		e := newEngine(t, Options{})
		m := mustCompile(t, e, test.guest.build())
		for i := range int64(3) {
			want := Usage{Instances: int(i), MemoryBytes: i * 24 * pageBytes, ReservedBytes: i * 1024 * pageBytes,
				ChargedBytes: i * (24*pageBytes + instanceBytes + test.tables)}
			if got := e.Usage(); got != want {
				t.Errorf("%d instances: usage is %+v, want %+v", i, got, want)
			}
			instantiate(t, m)
		}
	}
}

// TestInstancesShareNodeMemoryBudget checks that instances and their growth are charged to one
// budget, and that closing returns the memory to it.
func TestInstancesShareNodeMemoryBudget(t *testing.T) {
	const one = 24*pageBytes + instanceBytes
	e := newEngine(t, Options{MemoryBytes: 2*one + 5*pageBytes})
	m := mustCompile(t, e, growing().build())
	first, err := m.Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := instantiate(t, m)
	if _, err := m.Instantiate(t.Context()); !errors.Is(err, errNoMemory) {
		t.Errorf("a third instance gives %v", err)
	}
	if got := grow(t, second); got != 5 {
		t.Errorf("grew by %d pages, want the 5 that were left", got)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	third := instantiate(t, m)
	if got := grow(t, third); got != 0 {
		t.Errorf("grew by %d pages, want none", got)
	}
}

// TestSharedMemoryBudget checks that instances that share a budget together
// hold no more memory than the budget allows, that other instances are not
// charged to it, and that the budget is unused again once its instances are
// closed.
func TestSharedMemoryBudget(t *testing.T) {
	e := newEngine(t, Options{})
	m := mustCompile(t, e, growing().build())
	const start = 24 * pageBytes
	budget := NewMemoryBudget(2*(start+instanceBytes) + 5*pageBytes)
	open := func(own *MemoryBudget) *Instance {
		t.Helper()
		g, err := m.InstantiateWith(t.Context(), InstanceOptions{Memory: own})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	a, b := open(budget), open(budget)
	if _, err := m.InstantiateWith(t.Context(), InstanceOptions{Memory: budget}); !errors.Is(err, errNoMemory) {
		t.Errorf("a third instance: %v", err)
	}
	if got := grow(t, a) + grow(t, b); got != 5 {
		t.Errorf("both grew by %d pages, want 5", got)
	}
	if left := budget.Free(); left != 0 {
		t.Errorf("%d bytes are left", left)
	}
	other := open(nil)
	if got := grow(t, other); got < 100 {
		t.Errorf("one without the budget grew by %d pages", got)
	}
	for _, g := range []*Instance{a, b, other} {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if left := budget.Free(); left != budget.limit {
		t.Errorf("%d of %d bytes are left in the end", left, budget.limit)
	}
	if usage := e.Usage(); usage.ChargedBytes != 0 {
		t.Errorf("in the end the engine is charged with %+v", usage)
	}
}
