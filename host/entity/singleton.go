package entity

import (
	"fmt"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/sharding"
)

// A singleton type has one entity. It is in memory wherever its shard is led,
// whether or not it has ever had a command, and cannot be let go.

// errStays refuses to let the entity of a singleton type go. A handler that
// asks for it is not heard.
var errStays = &RejectedError{Code: "singleton", Message: "the one entity of its type stays in memory"}

// checkID refuses a request for an entity that a singleton type does not have.
func (t *Type) checkID(id sharding.EntityID) error {
	if t.Singleton && id.ID != manifest.SingletonID {
		return fmt.Errorf("%w: entity type %s has one entity, whose id is %q", sharding.ErrInvalidName, id.Type, manifest.SingletonID)
	}
	return nil
}

// leave lets an entity go that nobody is to start before it is asked for.
func (c *core) leave(e *entity) {
	if e.idling {
		c.stats.Passivations++
	}
	e.asleep = !e.typ.Singleton
	c.evict(e)
	c.revive(e)
}
