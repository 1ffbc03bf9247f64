package resident

// Idle is a list of entities in memory, least recently used first, with a
// cursor to the first entity that was not examined.
type Idle[E IdleMember[E]] struct {
	first, last E
	next        E // the first entity that was not examined
}

// IdleLinks are the neighbours of an entity in an Idle.
type IdleLinks[E any] struct {
	prev, next E
	in         bool
}

// In reports whether the entity is in a list.
func (l *IdleLinks[E]) In() bool { return l.in }

// IdleMember is an entity that can be in an Idle: a pointer.
type IdleMember[E any] interface {
	comparable
	// IdlePlace returns the list's data for the entity.
	IdlePlace() *IdleLinks[E]
}

// First is the least recently used entity.
func (l *Idle[E]) First() E { return l.first }

// Next is the first entity that was not examined.
func (l *Idle[E]) Next() E { return l.next }

// MarkExamined marks Next as examined.
func (l *Idle[E]) MarkExamined() { l.next = l.next.IdlePlace().next }

// Push adds an entity at the end.
func (l *Idle[E]) Push(e E) {
	var none E
	if *e.IdlePlace() = (IdleLinks[E]{prev: l.last, in: true}); l.last != none {
		l.last.IdlePlace().next = e
	} else {
		l.first = e
	}
	l.last = e
	if l.next == none {
		l.next = e
	}
}

// Unshift adds an entity at the front, as already examined.
func (l *Idle[E]) Unshift(e E) {
	var none E
	if *e.IdlePlace() = (IdleLinks[E]{next: l.first, in: true}); l.first != none {
		l.first.IdlePlace().prev = e
	} else {
		l.last = e
	}
	l.first = e
}

// Take removes an entity.
func (l *Idle[E]) Take(e E) {
	var none E
	place := e.IdlePlace()
	if l.next == e {
		l.next = place.next
	}
	if place.prev != none {
		place.prev.IdlePlace().next = place.next
	} else {
		l.first = place.next
	}
	if place.next != none {
		place.next.IdlePlace().prev = place.prev
	} else {
		l.last = place.prev
	}
	*place = IdleLinks[E]{}
}
