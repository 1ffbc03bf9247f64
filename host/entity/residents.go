package entity

import (
	"github.com/hostd/hostd/host/entity/resident"
)

// instance is a guest and its entities.
type instance = guestInstance[*entity]

// residents tracks which of an executor's entities are in memory and in which
// instances. It evicts idle entities, entities that must make room for
// others, and entities whose instance is closed.
type residents struct {
	*base
	exec  residentsExecutor
	known int // number of entities of all shards
	types *typeCounters
	pools instancePools[*entity]

	cache      resident.Cache[*entity]
	hibernated *resident.Store[*Type]
	idle       map[string]*idle // entities in memory by type
	empty      bool             // an instance has lost its last entity since the last sweep
	sweepAt    int64            // time of the next sweep for idle entities, unix nanoseconds; 0 for never
}

// residentsExecutor is the part of the executor that residents calls when entities
// leave memory.
type residentsExecutor interface {
	// revive loads an entity again that has left memory, if requests wait for
	// it.
	revive(*entity)
	// mustCheckFirst reports whether the entity must not leave yet because its state
	// must be taken.
	mustCheckFirst(e *entity, leaves bool) bool
	// isAlwaysOn reports whether a type is always-on.
	isAlwaysOn(entityType string) bool
}

func newResidents(b *base, exec residentsExecutor) *residents {
	m := &residents{
		base: b, exec: exec, types: &typeCounters{Table: b.opts.Stages},
		pools: newInstancePools[*entity](), idle: make(map[string]*idle),
	}
	m.hibernated = resident.NewStore[*Type](hibernatedOwner{m})
	return m
}
