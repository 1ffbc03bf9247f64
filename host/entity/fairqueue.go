package entity

import (
	"slices"

	"github.com/hostd/hostd/host/principal"
)

// Callers and types are hashed to places in a ring, so that the size of the
// ring is bounded. Callers with the same hash share a place. The place of a
// caller never changes, because otherwise its requests could overtake each
// other.
const (
	callers = 64
	types   = 16
)

// fairQueue is the queue of an executor. Callers take turns, the types of a
// caller take turns, and items with the same caller and type stay in order.
// While only one caller with one type waits, the queue is a plain list and
// nothing is hashed.
//
//	Push --> place of the caller --> place of the type --> in order --> Pop
//
// A fairQueue belongs to one goroutine. The zero value is empty. Salt
// determines which callers share a place.
type fairQueue[T any] struct {
	Salt uint64

	len     int
	several bool // items are in callers, not in alone
	callers ring[caller[T]]
	alone   list[T]
	last    key       // key of the items in alone, or of the last Push
	places  [2]uint64 // places of last, if several is set
}

// key is the caller and the type of an item.
type key struct {
	who  *principal.Principal
	what string
}

// caller holds the items of the callers in one place.
type caller[T any] struct {
	types ring[list[T]]
}

// ring holds the places with items, the index of the place whose turn is
// next, and the queues of removed places, for reuse.
type ring[E any] struct {
	in   []place[E]
	next int
	out  []*E
}

type place[E any] struct {
	hash uint64
	of   *E
}

// at returns the queue of a place. A new place gets its turn last.
func (r *ring[E]) at(hash uint64) *E {
	for i := range r.in {
		if r.in[i].hash == hash {
			return r.in[i].of
		}
	}
	var e *E
	if n := len(r.out); n > 0 {
		e, r.out = r.out[n-1], r.out[:n-1]
	} else {
		e = new(E)
	}
	// Insert before the place whose turn is next
	r.in = append(r.in, place[E]{})
	copy(r.in[r.next+1:], r.in[r.next:])
	r.in[r.next] = place[E]{hash, e}
	if len(r.in) > 1 {
		r.next++
	}
	return e
}

// leave removes the ith place, which is empty.
func (r *ring[E]) leave(i int) {
	r.out = append(r.out, r.in[i].of)
	r.in = slices.Delete(r.in, i, i+1)
	if r.next > i {
		r.next--
	}
	if r.next == len(r.in) {
		r.next = 0
	}
}

// turn passes the turn to the next place. empty reports that the current place
// is empty and must be removed.
func (r *ring[E]) turn(empty bool) {
	if empty {
		r.leave(r.next)
	} else if r.next++; r.next == len(r.in) {
		r.next = 0
	}
}

// Push adds an item of a caller and a type. who is nil for anonymous callers,
// which together count as one caller.
func (q *fairQueue[T]) Push(who *principal.Principal, what string, item T) {
	k := key{who, what}
	if q.len == 0 {
		q.last = k
	}
	q.len++
	if !q.several {
		if q.last == k || q.placesOf(q.last) == q.placesOf(k) {
			q.alone.push(item)
			return
		}
		q.several, q.places = true, q.placesOf(q.last)
		l := q.callers.at(q.places[0]).types.at(q.places[1])
		*l, q.alone = q.alone, *l
	}
	if q.last != k {
		q.last, q.places = k, q.placesOf(k)
	}
	q.callers.at(q.places[0]).types.at(q.places[1]).push(item)
}

// Pop removes and returns the next item. The queue must not be empty.
func (q *fairQueue[T]) Pop() T {
	q.len--
	if !q.several {
		return q.alone.pop()
	}
	c := q.callers.in[q.callers.next].of
	l := c.types.in[c.types.next].of
	item := l.pop()
	c.types.turn(l.len() == 0)
	q.callers.turn(len(c.types.in) == 0)
	q.several = q.len > 0
	return item
}

// Len is the number of items.
func (q *fairQueue[T]) Len() int { return q.len }

// Others reports whether an item of a different caller or type waits.
func (q *fairQueue[T]) Others(who *principal.Principal, what string) bool {
	k := key{who, what}
	switch {
	case q.len == 0 || !q.several && q.last == k:
		return false
	case !q.several:
		return q.placesOf(q.last) != q.placesOf(k)
	case len(q.callers.in) > 1 || len(q.callers.in[0].of.types.in) > 1:
		return true
	}
	return q.placesOf(k) != [2]uint64{q.callers.in[0].hash, q.callers.in[0].of.types.in[0].hash}
}

// Sift removes all items for which leaves returns true. The order and the turn
// of the rest do not change.
func (q *fairQueue[T]) Sift(leaves func(T) bool) {
	q.len -= q.alone.sift(leaves)
	for i := len(q.callers.in) - 1; i >= 0; i-- {
		types := &q.callers.in[i].of.types
		for j := len(types.in) - 1; j >= 0; j-- {
			l := types.in[j].of
			q.len -= l.sift(leaves)
			if l.len() == 0 {
				types.leave(j)
			}
		}
		if len(types.in) == 0 {
			q.callers.leave(i)
		}
	}
	q.several = q.several && q.len > 0
}

// largest bounds the capacity that an empty list keeps.
const largest = 1024

// list is a queue of items in order.
type list[T any] struct {
	items []T
	head  int
}

func (l *list[T]) len() int { return len(l.items) - l.head }

func (l *list[T]) push(item T) {
	if len(l.items) == cap(l.items) && l.head > len(l.items)/2 {
		n := copy(l.items, l.items[l.head:])
		clear(l.items[n:])
		l.items, l.head = l.items[:n], 0
	}
	l.items = append(l.items, item)
}

func (l *list[T]) pop() T {
	var none T
	item := l.items[l.head]
	l.items[l.head] = none
	l.head++
	if l.head == len(l.items) {
		if l.items, l.head = l.items[:0], 0; cap(l.items) > largest {
			l.items = nil
		}
	}
	return item
}

// sift removes the items for which leaves returns true, and returns their
// number.
func (l *list[T]) sift(leaves func(T) bool) int {
	kept := l.items[:0]
	for _, item := range l.items[l.head:] {
		if !leaves(item) {
			kept = append(kept, item)
		}
	}
	gone := l.len() - len(kept)
	clear(l.items[len(kept):])
	l.items, l.head = kept, 0
	return gone
}

// placesOf returns the places of a caller and of a type. The anonymous caller
// has a place that no other caller shares.
func (q *fairQueue[T]) placesOf(k key) [2]uint64 {
	return [2]uint64{q.placeOf(k.who), hash(q.Salt, k.what) % types}
}

func (q *fairQueue[T]) placeOf(who *principal.Principal) uint64 { return placeOf(q.Salt, who) }

// placeOf returns the place of a caller, from 0 to callers.
func placeOf(salt uint64, who *principal.Principal) uint64 {
	if who == nil {
		return callers
	}
	return hash(hash(salt, string(who.Kind)), who.Name) % callers
}

// hash is FNV-1a from a start value, with a final mix.
func hash(start uint64, text string) uint64 {
	h := start ^ 14695981039346656037
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	return h ^ h>>33
}
