package entity

import (
	"github.com/hostd/hostd/host/entity/binding"
	"github.com/hostd/hostd/host/entity/instances"
	"github.com/hostd/hostd/host/entity/resident"
)

// instance is a guest and the entities in it.
type instance = instances.Instance[*entity]

// residents is which of a lane's entities are in memory, and in which instances
// of their guests. It lets them leave: those that are idle, those that others
// need the room of, and those whose instance is given up.
type residents struct {
	*base
	lane  residentsLane
	known int // entities of all shards
	types *instances.Counters
	pools instances.Pools[*entity]

	cache   resident.Cache[*entity]
	dormant *resident.Store[*binding.Type]
	idle    map[string]*idle // by type
	empty   bool             // an instance has become so since the last sweep
	sweepAt int64            // when idle entities are looked for, unix nanoseconds; 0 for never
}

// residentsLane is what is asked of the lane about entities that leave.
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
		base: b, lane: lane, types: &instances.Counters{Table: b.opts.Stages},
		pools: instances.NewPools[*entity](), idle: make(map[string]*idle),
	}
	m.dormant = resident.NewStore[*binding.Type](dormantOwner{m})
	return m
}
