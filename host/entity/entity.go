package entity

import (
	"strings"

	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// extra is state that most entities in memory do not need: their load, their
// faults, and the filter of a large window.
type extra struct {
	load        *load
	beyond      window.Beyond    // filter for command ids that are older than the window
	whole       bool             // the next load reads the whole window
	below       journal.Sequence // only snapshots with a lower sequence are loaded; 0 for no limit
	messages    *entityMessages  // inbox and outbox
	rowOnly     bool             // the entity is in memory without a guest, only to be deleted
	windowStart windowStart      // beginning of the window for the next snapshot
	chain       uint8            // length of the chain of messages that started the run

	stateCheck residentCheck
	oversize   oversize // why the entity gets no snapshots

	faults faultState
}

// withExtra returns the entity's extra and creates it if necessary.
func (e *entity) withExtra() *extra {
	if e.extra == nil {
		e.extra = &extra{}
	}
	return e.extra
}

// trimExtra frees an empty extra.
func (e *entity) trimExtra() {
	if e.extra != nil && *e.extra == (extra{}) {
		e.extra = nil
	}
}

// chain returns how many messages led to the start of a run, or 0 if a client
// started the run.
func (e *entity) chain() uint8 {
	if e.extra == nil {
		return 0
	}
	return e.extra.chain
}

// beginChain sets the chain length of a run to that of the request that starts
// it. Rejected messages and earlier runs of the same id may have left a
// different length.
func (e *entity) beginChain(first *request.Request) {
	var length uint8
	if first.Kind == request.Deliver {
		length = first.Delivery.Exec.Hops
	}
	if e.chain() != length {
		e.withExtra().chain = length
	}
}

// load returns the load in progress, or nil.
func (e *entity) load() *load {
	if e.extra == nil {
		return nil
	}
	return e.extra.load
}

// entity returns an entity of the shard. It creates a cold one if necessary.
func (m *residents) entity(s *shard, id sharding.EntityID) *entity {
	key := m.key(id)
	e := m.find(s, id, key)
	if e == nil {
		// Clone the id, because it is a substring of the request's message and
		// would keep the whole message in memory.
		e = &entity{id: sharding.EntityID{Type: m.typeName(id.Type), ID: strings.Clone(id.ID)}, shard: s, key: key}
		s.entities.Put(e)
		m.known++
	}
	return e
}

// ID implements resident.Named.
func (e *entity) ID() sharding.EntityID { return e.id }

// Key implements resident.Named.
func (e *entity) Key() uint32 { return e.key }

// Place implements resident.Member.
func (e *entity) Place() (*resident.Links[*entity], *resident.Segment) { return &e.place, &e.seg }

// typeName returns a copy of a type's name that all entities of the type
// share, to save memory.
func (m *residents) typeName(name string) string {
	if t := m.opts.Types.Lookup(name); t != nil && t.Name == name {
		return t.Name
	}
	return strings.Clone(name)
}

// IdlePlace implements resident.IdleMember.
func (e *entity) IdlePlace() *resident.IdleLinks[*entity] { return &e.idler }

// Faults returns the entity's fault state, or nil if there is none.
func (e *entity) Faults() *faultState {
	if e.extra == nil {
		return nil
	}
	return &e.extra.faults
}

// IsKnown reports whether the executor still has the entity.
func (e *entity) IsKnown() bool { return e.shard.entities.Has(e) }

// faults is the number of consecutive faults.
func (e *entity) faults() int {
	if e.extra == nil {
		return 0
	}
	return e.extra.faults.Consecutive()
}

// noteError remembers the entity's last error.
func (e *entity) noteError(err error) { e.withExtra().faults.Note(err) }

// clearFaults forgets the entity's faults and last error.
func (e *entity) clearFaults() {
	if e.extra != nil {
		e.extra.faults = faultState{}
		e.trimExtra()
	}
}

// isQuarantined reports whether the entity is quarantined for faults under the present
// activation of its type. A new activation releases it.
func (c *core) isQuarantined(e *entity) bool {
	if e.extra == nil || !e.extra.faults.IsQuarantined(c.now) {
		return false
	}
	t := c.typeOf(e.id)
	return t == nil || e.extra.faults.IsUnder(t.Revision)
}

// turnAway rejects the requests that wait for a quarantined entity, except
// operators' requests that skip a timer or delete the entity. Such a request
// needs the entity's history and not the command that faults, so the entity
// is loaded for it. turnAway reports whether there is such a request.
func (e *entity) turnAway() bool {
	for n := e.waiting.Len(); n > 0; n-- {
		if r := e.waiting.Pop(); r.Kind == request.SkipTimer || r.Kind == request.Delete {
			e.waiting.Push(r)
		} else {
			e.shard.settle(r, request.Result{Err: request.ErrQuarantined})
		}
	}
	return e.waiting.Len() > 0
}
