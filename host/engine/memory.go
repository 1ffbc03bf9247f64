package engine

import (
	"fmt"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// memoryBudget counts the linear memory of all instances of an engine, and
// bounds it.
type memoryBudget struct {
	limit int64 // bytes; 0 is no limit
	used  atomic.Int64
}

func (b *memoryBudget) take(bytes int64) bool {
	if sum := b.used.Add(bytes); b.limit > 0 && sum > b.limit {
		b.used.Add(-bytes)
		return false
	}
	return true
}

func (b *memoryBudget) give(bytes int64) { b.used.Add(-bytes) }

// linearMemory is the memory of one instance: an address range reserved for
// the most it may become, of which the pages up to its length are accessible.
// It never moves and is never copied to grow; pages a guest has not touched
// cost nothing. (A Rust guest takes 57 KB this way and 1,407 KB from the Go
// heap.)
//
// The runtime calls it from the goroutine of the instance only. Free may be
// called twice.
type linearMemory struct {
	budget   *memoryBudget
	reserved []byte
	length   int
}

var _ experimental.LinearMemory = (*linearMemory)(nil)

// Allocate implements experimental.MemoryAllocator. An instance has one
// memory and its own linearMemory, which is the allocator too: whoever made
// it can then free it when instantiation fails half way, which the runtime
// does not.
func (m *linearMemory) Allocate(_, max uint64) experimental.LinearMemory {
	if max == 0 {
		return m
	}
	reserved, err := reserve(int(max))
	if err != nil {
		panic(fmt.Errorf("%w: reserve %d bytes of address space: %v", ErrNoMemory, max, err))
	}
	m.reserved = reserved
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
		return nil
	}
	if size == 0 {
		return []byte{}
	}
	return m.reserved[:size:size]
}

func (m *linearMemory) grow(size uint64) bool {
	more := int64(size) - int64(m.length)
	if size > uint64(len(m.reserved)) || more < 0 || !m.budget.take(more) {
		return false
	}
	if more == 0 {
		return true
	}
	if err := commit(m.reserved[m.length:size]); err != nil {
		m.budget.give(more)
		return false
	}
	m.length = int(size)
	return true
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
	m.budget.give(int64(m.length))
	m.reserved, m.length = nil, 0
}
