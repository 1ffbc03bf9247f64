// Package sorted has a map that is ordered by key. It has no goroutine and no
// lock.
package sorted

import (
	"cmp"
	"slices"
)

// nodeMost is the maximum number of entries of a leaf and of children of an
// inner node.
const nodeMost = 64

// Map is a B+ tree: values are in the leaves, which all have the same depth.
// Empty nodes are removed, but nodes are never merged otherwise
// (free-at-empty), so the depth never exceeds the depth of the map at its
// largest size since it was last empty. Every operation on one key costs O(log
// n) and moves at most nodeMost entries. The zero Map is empty and ready to
// use.
type Map[K cmp.Ordered, V any] struct {
	root *node[K, V]
	n    int
}

// node is a leaf with values, or an inner node. The keys of an inner node are
// the lower bounds of its children's keys; the first key is unused.
type node[K cmp.Ordered, V any] struct {
	keys   []K
	values []V
	kids   []*node[K, V]
}

// Len returns the number of keys.
func (m *Map[K, V]) Len() int { return m.n }

// Get returns the value of a key.
func (m *Map[K, V]) Get(key K) (v V, ok bool) {
	if p := m.find(key); p != nil {
		return *p, true
	}
	return v, false
}

// find returns a pointer to the value of a key, nil if there is none. It is
// valid until the next change of the map.
func (m *Map[K, V]) find(key K) *V {
	t := m.root
	if t == nil {
		return nil
	}
	for t.kids != nil {
		t = t.kids[t.kid(key)]
	}
	if i, ok := slices.BinarySearch(t.keys, key); ok {
		return &t.values[i]
	}
	return nil
}

// kid returns the index of the child that contains a key.
func (t *node[K, V]) kid(key K) int {
	i, ok := slices.BinarySearch(t.keys[1:], key)
	if ok {
		i++
	}
	return i
}

// Set sets the value of a key.
func (m *Map[K, V]) Set(key K, v V) {
	if m.root == nil {
		m.root = &node[K, V]{}
	}
	if right := m.set(m.root, key, v); right != nil {
		left := m.root
		m.root = &node[K, V]{keys: []K{left.keys[0], right.keys[0]}, kids: []*node[K, V]{left, right}}
	}
}

// set returns the upper half of the node if it had to be split.
func (m *Map[K, V]) set(t *node[K, V], key K, v V) (right *node[K, V]) {
	if t.kids == nil {
		i, ok := slices.BinarySearch(t.keys, key)
		if ok {
			t.values[i] = v
			return nil
		}
		m.n++
		t.keys, t.values = slices.Insert(t.keys, i, key), slices.Insert(t.values, i, v)
		return t.split()
	}
	i := t.kid(key)
	if split := m.set(t.kids[i], key, v); split != nil {
		t.keys, t.kids = slices.Insert(t.keys, i+1, split.keys[0]), slices.Insert(t.kids, i+1, split)
	}
	return t.split()
}

// split removes and returns the upper half of a node that is too large.
func (t *node[K, V]) split() *node[K, V] {
	n := len(t.keys)
	if n <= nodeMost {
		return nil
	}
	at := n / 2
	right := &node[K, V]{keys: slices.Clone(t.keys[at:])}
	clear(t.keys[at:])
	t.keys = t.keys[:at]
	if t.kids != nil {
		right.kids = slices.Clone(t.kids[at:])
		clear(t.kids[at:])
		t.kids = t.kids[:at]
		return right
	}
	right.values = slices.Clone(t.values[at:])
	clear(t.values[at:])
	t.values = t.values[:at]
	return right
}

// Delete removes a key, and reports whether it existed.
func (m *Map[K, V]) Delete(key K) bool {
	if m.root == nil || !m.delete(m.root, key) {
		return false
	}
	m.n--
	for m.root != nil && m.root.kids != nil && len(m.root.kids) == 1 {
		m.root = m.root.kids[0]
	}
	if m.n == 0 {
		m.root = nil
	}
	return true
}

func (m *Map[K, V]) delete(t *node[K, V], key K) bool {
	if t.kids == nil {
		i, ok := slices.BinarySearch(t.keys, key)
		if ok {
			t.keys, t.values = slices.Delete(t.keys, i, i+1), slices.Delete(t.values, i, i+1)
		}
		return ok
	}
	i := t.kid(key)
	if !m.delete(t.kids[i], key) {
		return false
	}
	if len(t.kids[i].keys) == 0 {
		t.keys, t.kids = slices.Delete(t.keys, i, i+1), slices.Delete(t.kids, i, i+1)
	}
	return true
}

// From yields the keys from a key on, with their values, in ascending order.
// The map must not be changed during the iteration.
func (m *Map[K, V]) From(key K) func(yield func(K, V) bool) {
	return func(yield func(K, V) bool) {
		if m.root != nil {
			m.root.from(key, yield)
		}
	}
}

func (t *node[K, V]) from(key K, yield func(K, V) bool) bool {
	if t.kids == nil {
		i, _ := slices.BinarySearch(t.keys, key)
		for ; i < len(t.keys); i++ {
			if !yield(t.keys[i], t.values[i]) {
				return false
			}
		}
		return true
	}
	i := t.kid(key)
	if !t.kids[i].from(key, yield) {
		return false
	}
	for _, k := range t.kids[i+1:] {
		if !k.all(yield) {
			return false
		}
	}
	return true
}

// All yields all keys with their values, in ascending order. The map must not
// be changed during the iteration.
func (m *Map[K, V]) All(yield func(K, V) bool) {
	if m.root != nil {
		m.root.all(yield)
	}
}

func (t *node[K, V]) all(yield func(K, V) bool) bool {
	for i := range t.values {
		if !yield(t.keys[i], t.values[i]) {
			return false
		}
	}
	for _, k := range t.kids {
		if !k.all(yield) {
			return false
		}
	}
	return true
}

// First returns the smallest key.
func (m *Map[K, V]) First() (key K, v V, ok bool) {
	for key, v := range m.All {
		return key, v, true
	}
	return key, v, false
}
