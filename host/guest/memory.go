package guest

import (
	"fmt"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// memoryBudget counts and bounds the memory that a set of instances holds.
//
// Problem: instances of untrusted modules grow while they run, on several
// executors at a time. Their sum must stay within what the node has for guests,
// and an instance that may not grow must not harm the others.
//
// Approach: memory is charged before it exists. The fixed cost of an instance is
// charged when it is created (admit), and its linear memory when the guest grows
// it (takeLinear), by adding to an atomic sum and taking the addition back if the
// sum is above the limit, without a lock. Both are charged to two budgets, that of
// the engine and, if there is one, that of the type: to both or to neither.
//
// Invariants: total is never above limit for longer than a failed attempt, and it
// may then reject another attempt that alone would have fit. A refused growth is
// a failed memory.grow, which the module can handle; the instance keeps what it
// has. Everything charged is given back exactly once, when the instance is closed
// or when Free unmaps its memory.
//
// A budget only refuses. Each executor evicts entities before its instances exceed
// the executor's share of the guest memory (residents in package entity), so a
// refusal here is the last resort.
//
// Rejected: measuring resident memory, because it differs between nodes and
// changes without a call; and the Go runtime's memory limit alone, because linear
// memory is not on its heap.
type memoryBudget struct {
	limit int64 // limit in bytes; 0 means no limit

	total     atomic.Int64 // charged against limit: linear memory and fixed costs of instances
	linear    atomic.Int64
	reserved  atomic.Int64 // reserved address space in bytes
	instances atomic.Int64
}

// instanceBytes is charged for the memory of an instance besides its linear
// memory and Description.HeldBytes: native stacks and the runtime's own records
// (measured: 32 to 53 KB).
const instanceBytes = 64 << 10

// MemoryBudget bounds the memory that all instances created with it hold
// together, as Usage.ChargedBytes counts it. The bound of their engine applies
// too. It is safe for concurrent use.
type MemoryBudget struct{ memoryBudget }

// NewMemoryBudget returns a budget of the given number of bytes.
func NewMemoryBudget(bytes int64) *MemoryBudget { return &MemoryBudget{memoryBudget{limit: bytes}} }

// Free returns the unused bytes of the budget.
func (b *MemoryBudget) Free() int64 { return b.limit - b.total.Load() }

func (b *memoryBudget) take(bytes int64) bool {
	if sum := b.total.Add(bytes); b.limit > 0 && sum > b.limit {
		b.total.Add(-bytes)
		return false
	}
	return true
}

func (b *memoryBudget) takeLinear(bytes int64) bool {
	if !b.take(bytes) {
		return false
	}
	b.linear.Add(bytes)
	return true
}

func (b *memoryBudget) giveLinear(bytes int64) {
	b.total.Add(-bytes)
	b.linear.Add(-bytes)
}

// admit charges the fixed bytes of a new instance. The error wraps errNoMemory.
func (b *memoryBudget) admit(bytes int64) error {
	if !b.take(bytes) {
		return fmt.Errorf("%w: %d bytes for a new instance", errNoMemory, bytes)
	}
	b.instances.Add(1)
	return nil
}

func (b *memoryBudget) leave(bytes int64) {
	b.total.Add(-bytes)
	b.instances.Add(-1)
}

// Usage is the memory that the open instances of an engine hold.
type Usage struct {
	Instances int
	// MemoryBytes is the size of linear memory as the guests see it. Pages that
	// were never touched count, although they cost nothing.
	MemoryBytes int64
	// ReservedBytes is reserved address space, which costs nothing.
	ReservedBytes int64
	// ChargedBytes is the sum that Options.MemoryBytes bounds: MemoryBytes,
	// tables at their maximum size, elements, globals and segments, and 64 KiB
	// for each instance.
	ChargedBytes int64
}

// Usage returns the memory that the open instances hold.
func (e *Engine) Usage() Usage {
	b := &e.budget
	return Usage{
		Instances: int(b.instances.Load()), MemoryBytes: b.linear.Load(),
		ReservedBytes: b.reserved.Load(), ChargedBytes: b.total.Load(),
	}
}

// linearMemory is the memory of one instance: an address range reserved for its
// maximum size, of which the pages up to length are accessible. It never moves,
// so growing copies nothing, and the last untouchedBytes cost nothing until the
// guest touches them. (A Rust guest uses 57 KB this way, against 1,407 KB on
// the Go heap.)
//
// The runtime calls it only from the goroutine of the instance. Free may be
// called twice.
type linearMemory struct {
	budget   *memoryBudget
	own      *memoryBudget // second budget to charge; nil means none
	limit    uint64        // maximum size in bytes; 0 selects the module's maximum
	reserved []byte
	length   int
	present  int    // bytes from the start whose pages exist
	image    *image // initial content; nil means none
	refused  bool   // a memory.grow failed
}

// untouchedBytes is how much of its memory a guest may find without pages. The
// pages below that are created when the memory is created or grown. The kernel
// needs 1 to 2.5 us to create a page, and a guest spends only a unit or two of
// fuel to touch it, so a guest that walked through 64 MiB of new memory could
// not be stopped in time.
const untouchedBytes = 2 << 20

var _ experimental.LinearMemory = (*linearMemory)(nil)

// Allocate implements experimental.MemoryAllocator. An instance has exactly one
// memory, and its linearMemory is the allocator as well. So the instance's
// creator can free the memory if instantiation fails half way, which the
// runtime does not do.
func (m *linearMemory) Allocate(_, max uint64) experimental.LinearMemory {
	if max == 0 {
		return m
	}
	if m.limit > 0 {
		max = min(max, m.limit)
	}
	reserved, err := reserve(int(max))
	if err != nil {
		panic(fmt.Errorf("%w: reserve %d bytes of address space: %v", errNoMemory, max, err))
	}
	m.reserved = reserved
	m.budget.reserved.Add(int64(len(reserved)))
	return m
}

// Reallocate makes the memory size bytes long. It returns nil, which the guest
// sees as a failed memory.grow, if a budget or the kernel refuses. For the
// initial size it panics instead, because the runtime offers no other way to
// fail there.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if !m.grow(size) {
		if m.length == 0 && size > 0 {
			panic(fmt.Errorf("%w: %d bytes for a new instance", errNoMemory, size))
		}
		m.refused = true
		return nil
	}
	if m.length == 0 {
		return []byte{}
	}
	return m.reserved[:m.length:m.length]
}

func (m *linearMemory) grow(size uint64) bool {
	if m.image != nil && m.length == 0 {
		size = max(size, uint64(m.image.length))
	}
	more := int64(size) - int64(m.length)
	if size > uint64(len(m.reserved)) || more < 0 || !m.take(more) {
		return false
	}
	if more == 0 {
		return true
	}
	if err := m.commit(int(size)); err != nil {
		m.give(more)
		return false
	}
	m.length = int(size)
	return true
}

// commit makes the range up to size accessible.
func (m *linearMemory) commit(size int) error {
	if err := commit(m.reserved[m.length:size]); err != nil {
		return err
	}
	if m.image != nil && m.length == 0 {
		if err := m.image.file.mapInto(m.reserved); err != nil {
			return err
		}
		m.present = m.image.file.bytes
	}
	if upTo := size - untouchedBytes; upTo > m.present {
		if err := populate(m.reserved[m.present:upTo]); err != nil {
			return err
		}
		m.present = upTo
	}
	return nil
}

// take charges both budgets, or neither.
func (m *linearMemory) take(bytes int64) bool {
	if m.own != nil && !m.own.takeLinear(bytes) {
		return false
	}
	if !m.budget.takeLinear(bytes) {
		if m.own != nil {
			m.own.giveLinear(bytes)
		}
		return false
	}
	return true
}

func (m *linearMemory) give(bytes int64) {
	m.budget.giveLinear(bytes)
	if m.own != nil {
		m.own.giveLinear(bytes)
	}
}

// Free unmaps the range. Slices of it must not be used afterwards.
func (m *linearMemory) Free() {
	if m.reserved == nil {
		return
	}
	// Unmapping fails only if the range is not a mapping.
	if err := unreserve(m.reserved); err != nil {
		panic(fmt.Errorf("unmap linear memory: %w", err))
	}
	m.give(int64(m.length))
	m.budget.reserved.Add(-int64(len(m.reserved)))
	m.reserved, m.length, m.present = nil, 0, 0
}
