package entity

import (
	"strings"

	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// extra is what most entities in memory do without: how one is loaded, what
// went wrong with it, and the filter of a long window.
type extra struct {
	load     *load
	beyond   window.Beyond    // what is known of ids older than seen
	whole    bool             // the next load reads the whole window
	below    journal.Sequence // snapshots from here on do not load; 0 for none of them
	messages *entityMessages  // what is known of its messages
	headOnly bool             // resident without a guest, to be deleted
	stands   standing         // where its window begins, for the next snapshot

	residence residence
	oversize  oversize // its state is too large for a snapshot

	faults faultState
}

// withExtra returns the entity's extra, to be changed.
func (e *entity) withExtra() *extra {
	if e.extra == nil {
		e.extra = &extra{}
	}
	return e.extra
}

// trimExtra gives it back when it says nothing.
func (e *entity) trimExtra() {
	if e.extra != nil && *e.extra == (extra{}) {
		e.extra = nil
	}
}

// load is the one in progress; nil when there is none.
func (e *entity) load() *load {
	if e.extra == nil {
		return nil
	}
	return e.extra.load
}

// entity returns one of the shard's entities; it is made when it is not there.
func (m *residents) entity(s *shard, id sharding.EntityID) *entity {
	key := m.key(id)
	e := m.find(s, id, key)
	if e == nil {
		// The request's names lie in the message that brought them.
		e = &entity{id: sharding.EntityID{Type: m.typeName(id.Type), ID: strings.Clone(id.ID)}, shard: s, key: key}
		s.entities.Put(e)
		m.known++
	}
	return e
}

// ID is the entity's name.
func (e *entity) ID() sharding.EntityID { return e.id }

// Key is the key of the entity's name.
func (e *entity) Key() uint32 { return e.key }

// Place is where the cache has the entity.
func (e *entity) Place() (*resident.Links[*entity], *resident.Segment) { return &e.place, &e.seg }

// typeName returns a type's name in memory that all its entities share.
func (m *residents) typeName(name string) string {
	if t := m.opts.Types.Lookup(name); t != nil && t.Name == name {
		return t.Name
	}
	return strings.Clone(name)
}

// IdlePlace is where its type's idle ones have the entity.
func (e *entity) IdlePlace() *resident.IdleLinks[*entity] { return &e.idler }

// Faults is what is remembered of the entity's; nil for nothing.
func (e *entity) Faults() *faultState {
	if e.extra == nil {
		return nil
	}
	return &e.extra.faults
}

// Known reports that the executor has the entity.
func (e *entity) Known() bool { return e.shard.entities.Has(e) }

// faults is how many there were in a row.
func (e *entity) faults() int {
	if e.extra == nil {
		return 0
	}
	return e.extra.faults.InRow()
}

// noteError keeps what went wrong with the entity.
func (e *entity) noteError(err error) { e.withExtra().faults.Note(err) }

// clearFaults forgets what went wrong.
func (e *entity) clearFaults() {
	if e.extra != nil {
		e.extra.faults = faultState{}
		e.trimExtra()
	}
}

// parked reports that the entity is held back, for what its type did as it is
// served now: one that is served otherwise since has a go.
func (c *core) parked(e *entity) bool {
	if e.extra == nil || !e.extra.faults.Parked(c.now) {
		return false
	}
	t := c.typeOf(e.id)
	return t == nil || e.extra.faults.Under(t.Revision)
}

// turnAway refuses what waits for a parked entity, but for what a person does
// about it: skipping its timer or deleting it takes its history and not the
// command that faults, so it is loaded for that. It reports whether anything
// is left to load it for.
func (e *entity) turnAway() bool {
	for n := e.waiting.Len(); n > 0; n-- {
		if r := e.waiting.Pop(); r.Kind == request.SkipTimer || r.Kind == request.Delete {
			e.waiting.Push(r)
		} else {
			e.shard.settle(r, request.Result{Err: request.ErrParked})
		}
	}
	return e.waiting.Len() > 0
}
