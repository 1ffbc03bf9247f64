package router

import (
	"hash/maphash"

	"github.com/hostd/hostd/host/request"
)

const (
	ranSets = 32
	ranWays = 8
)

// ran records, for the entities of a route, the highest number of a command
// that has an outcome. An earlier command of the same entity must not run after
// that.
//
// Keeping a number per entity forever would need unbounded memory, so ran is a
// set-associative table: the hash of an entity selects a set, and the set keeps
// the entities with its highest numbers. For evicted entities it keeps one
// upper bound. That suffices, because only commands that are still out or held
// can be earlier than a recorded command, and commands that are out or held
// are recent. If many entities of one set complete commands while a command
// is out, the bound may exceed the real number of its entity. The command is
// then treated as overtaken and fails with unavailable although it could
// have been resent, but the order is never violated.
type ran struct{ sets *[ranSets]ranSet } // nil until the first number

// ranSet holds the numbers of some entities and an upper bound for all others.
type ranSet struct {
	entities [ranWays]uint64
	numbers  [ranWays]uint64 // 0 if the way is free
	others   uint64
}

// note records the outcome of an entity's command.
func (r *ran) note(entity, number uint64) {
	if r.sets == nil {
		r.sets = new([ranSets]ranSet)
	}
	s := &r.sets[entity%ranSets]
	least := 0
	for i, n := range s.numbers {
		if n > 0 && s.entities[i] == entity {
			s.numbers[i] = max(n, number)
			return
		}
		if n < s.numbers[least] {
			least = i
		}
	}
	if number <= s.numbers[least] {
		s.others = max(s.others, number)
		return
	}
	s.others = max(s.others, s.numbers[least])
	s.entities[least], s.numbers[least] = entity, number
}

// of returns the highest number of a command of the entity that has an outcome,
// or an upper bound of that number.
func (r *ran) of(entity uint64) uint64 {
	if r.sets == nil {
		return 0
	}
	s := &r.sets[entity%ranSets]
	for i, n := range s.numbers {
		if n > 0 && s.entities[i] == entity {
			return n
		}
	}
	return s.others
}

// keyOf returns the hash that identifies a request's entity in ran.
func (l *limits) keyOf(q *request.Request) uint64 {
	return maphash.String(l.seed, q.Entity.ID)*31 + maphash.String(l.seed, q.Entity.Type)
}
