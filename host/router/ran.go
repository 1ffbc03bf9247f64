package router

import (
	"hash/maphash"

	"github.com/hostd/hostd/host/request"
)

const (
	ranSets = 32
	ranWays = 8
)

// ran knows of a route's entities the highest number of a command with an
// outcome: an earlier command of the same entity must not run any more. Only
// what is still out or held can be earlier, so the entities with the highest
// numbers are kept, some in each of the sets that they are spread over by a
// hash of their names; of the others a set knows a number that none of them is
// above. Where so many entities of a set have gone on while a command was out,
// it may be taken for overtaken although it is not, and fails with unavailable
// where it could have been sent again.
type ran struct{ sets *[ranSets]ranSet } // nil until there is a number

// ranSet has the numbers of some entities, and the highest of all others.
type ranSet struct {
	entities [ranWays]uint64
	numbers  [ranWays]uint64 // 0 where free
	others   uint64
}

// note takes an outcome of an entity's command.
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

// of is the highest number of a command of the entity with an outcome, or one
// above it.
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

// keyOf stands for a request's entity in ran.
func (l *limits) keyOf(q *request.Request) uint64 {
	return maphash.String(l.seed, q.Entity.ID)*31 + maphash.String(l.seed, q.Entity.Type)
}
