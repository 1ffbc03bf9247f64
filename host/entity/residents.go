package entity

import (
	"github.com/hostd/hostd/host/entity/resident"
)

// instance is a guest and the entities in it.
type instance = guestInstance[*entity]

// residents is which of an executor's entities are in memory, and in which instances
// of their guests. It lets them leave: those that are idle, those that others
// need the room of, and those whose instance is given up.
type residents struct {
	*base
	lane  residentsLane
	known int // entities of all shards
	types *typeCounters
	pools instancePools[*entity]

	cache   resident.Cache[*entity]
	dormant *resident.Store[*Type]
	idle    map[string]*idle // by type
	empty   bool             // an instance has become so since the last sweep
	sweepAt int64            // when idle entities are looked for, unix nanoseconds; 0 for never
}

// residentsLane is what is asked of the executor about entities that leave.
type residentsLane interface {
	// revive takes an entity on that has left.
	revive(*entity)
	// checksFirst reports that the entity is not to leave yet, since its state is
	// to be taken.
	checksFirst(e *entity, leaves bool) bool
	// keeps reports that a type keeps its entities in memory.
	keeps(entityType string) bool
}

func newResidents(b *base, lane residentsLane) *residents {
	m := &residents{
		base: b, lane: lane, types: &typeCounters{Table: b.opts.Stages},
		pools: newInstancePools[*entity](), idle: make(map[string]*idle),
	}
	m.dormant = resident.NewStore[*Type](dormantOwner{m})
	return m
}
