package guest

import (
	"fmt"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// memoryBudget counts what the instances of an engine hold, and bounds it.
type memoryBudget struct {
	limit int64 // bytes; 0 is no limit

	total     atomic.Int64 // what the limit holds for: linear memory and instanceBytes
	linear    atomic.Int64
	reserved  atomic.Int64 // address space
	instances atomic.Int64
}

// instanceBytes is what an instance holds besides its linear memory and what
// is counted by Description.HeldBytes: native stacks and the runtime's own records
// (32 to 53 KB measured).
const instanceBytes = 64 << 10

// MemoryBudget bounds what the instances that were given it hold together, as
// Usage.ChargedBytes counts it, beside the bound of their engine. It is safe
// for concurrent use.
type MemoryBudget struct{ memoryBudget }

// NewMemoryBudget returns a budget of so many bytes.
func NewMemoryBudget(bytes int64) *MemoryBudget { return &MemoryBudget{memoryBudget{limit: bytes}} }

// Left is what is left of the budget.
func (b *MemoryBudget) Left() int64 { return b.limit - b.total.Load() }

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

// admit charges for a new instance, which holds bytes besides linear memory.
func (b *memoryBudget) admit(bytes int64) error {
	if !b.take(bytes) {
		return fmt.Errorf("%w: %d bytes for a new instance", ErrNoMemory, bytes)
	}
	b.instances.Add(1)
	return nil
}

func (b *memoryBudget) leave(bytes int64) {
	b.total.Add(-bytes)
	b.instances.Add(-1)
}

// Usage is what the open instances of an engine hold.
type Usage struct {
	Instances int
	// MemoryBytes is linear memory as the guests see it; pages never made
	// are counted and cost nothing.
	MemoryBytes int64
	// ReservedBytes is address space, which costs nothing.
	ReservedBytes int64
	// ChargedBytes is what Options.MemoryBytes holds for: MemoryBytes, tables
	// at their largest, elements, globals and segments, and 64 KiB an instance.
	ChargedBytes int64
}

// Usage returns what the open instances hold.
func (e *Engine) Usage() Usage {
	b := &e.budget
	return Usage{
		Instances: int(b.instances.Load()), MemoryBytes: b.linear.Load(),
		ReservedBytes: b.reserved.Load(), ChargedBytes: b.total.Load(),
	}
}

// linearMemory is the memory of one instance: an address range reserved for
// the most it may become, of which the pages up to its length are accessible.
// It never moves and is never copied to grow; the last untouchedBytes cost
// nothing until a guest touches them. (A Rust guest takes 57 KB this way and
// 1,407 KB from the Go heap.)
//
// The runtime calls it from the goroutine of the instance only. Free may be
// called twice.
type linearMemory struct {
	budget   *memoryBudget
	own      *memoryBudget // besides; nil is none
	limit    uint64        // bytes it may grow to; 0 is the module's maximum
	reserved []byte
	length   int
	present  int    // bytes from the start whose pages have been made
	image    *image // that it begins with; nil is none
	refused  bool   // a memory.grow
}

// untouchedBytes is how much of its memory a guest may find without pages. What
// is before that gets them when the memory is made or grown: a page takes the
// kernel 1 to 2.5 us to make, and a guest that came to 64 MiB of new memory
// could not be stopped meanwhile, as it spends a unit or two on each page.
const untouchedBytes = 2 << 20

var _ experimental.LinearMemory = (*linearMemory)(nil)

// Allocate implements experimental.MemoryAllocator. An instance has one
// memory and its own linearMemory, which is the allocator too: whoever made
// it can then free it when instantiation fails half way, which the runtime
// does not.
func (m *linearMemory) Allocate(_, max uint64) experimental.LinearMemory {
	if max == 0 {
		return m
	}
	if m.limit > 0 {
		max = min(max, m.limit)
	}
	reserved, err := reserve(int(max))
	if err != nil {
		panic(fmt.Errorf("%w: reserve %d bytes of address space: %v", ErrNoMemory, max, err))
	}
	m.reserved = reserved
	m.budget.reserved.Add(int64(len(reserved)))
	return m
}

// Reallocate makes the memory size bytes long. It returns nil, which the guest
// sees as a failed memory.grow, when the node's budget or the kernel refuses;
// for the size at instantiation it panics, as the runtime has no other way to
// fail there.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if !m.grow(size) {
		if m.length == 0 && size > 0 {
			panic(fmt.Errorf("%w: %d bytes for a new instance", ErrNoMemory, size))
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

// take takes from both budgets, or from none.
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

// Free gives the range back. Slices of it must not be used again.
func (m *linearMemory) Free() {
	if m.reserved == nil {
		return
	}
	// Only a range that is no mapping can fail to unmap.
	if err := unreserve(m.reserved); err != nil {
		panic(fmt.Errorf("unmap linear memory: %w", err))
	}
	m.give(int64(m.length))
	m.budget.reserved.Add(-int64(len(m.reserved)))
	m.reserved, m.length, m.present = nil, 0, 0
}
