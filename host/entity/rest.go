package entity

import (
	"strings"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// rest is what most entities in memory do without: how one is loaded, what
// went wrong with it, and the filter of a long window.
type rest struct {
	load    *load
	filter  *filter          // of the ids in seen and of older ones; nil while there are few
	partial bool             // ids older than seen are in the filter, and not in seen
	whole   bool             // the next load reads the whole window
	older   journal.Sequence // with partial, the older ids are in the records from here on
	below   journal.Sequence // snapshots from here on do not load; 0 for none of them
	mail    *entityMail      // what is known of its sends
	hollow  bool             // resident without a guest, to be deleted
	stands  standing         // where its window begins, for the next snapshot

	faults   int32 // in a row
	err      string
	parkedTo time.Time
}

// more returns the entity's rest, to be changed.
func (e *entity) more() *rest {
	if e.rest == nil {
		e.rest = &rest{}
	}
	return e.rest
}

// less gives the rest back when it says nothing.
func (e *entity) less() {
	if e.rest != nil && *e.rest == (rest{}) {
		e.rest = nil
	}
}

// load is the one in progress; nil when there is none.
func (e *entity) load() *load {
	if e.rest == nil {
		return nil
	}
	return e.rest.load
}

func (e *entity) faults() int {
	if e.rest == nil {
		return 0
	}
	return int(e.rest.faults)
}

func (e *entity) failed(err error) { e.more().err = err.Error() }

// cleared forgets what went wrong.
func (e *entity) cleared() {
	if e.rest != nil {
		e.rest.faults, e.rest.err, e.rest.parkedTo = 0, "", time.Time{}
		e.less()
	}
}

func (e *entity) parked(now time.Time) bool { return e.rest != nil && e.rest.parkedTo.After(now) }

// entity returns one of the shard's entities; it is made when it is not there.
func (c *core) entity(s *shard, id sharding.EntityID) *entity {
	key := c.key(id)
	e := c.find(s, id, key)
	if e == nil {
		// The request's names lie in the message that brought them.
		e = &entity{id: sharding.EntityID{Type: c.typeName(id.Type), ID: strings.Clone(id.ID)}, shard: s, key: key}
		s.entities.put(e)
		c.known++
	}
	return e
}

// typeName returns a type's name in memory that all its entities share.
func (c *core) typeName(name string) string {
	if t := c.opts.Types.Lookup(name); t != nil && t.Name == name {
		return t.Name
	}
	return strings.Clone(name)
}
