package store

import (
	"errors"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// findLives lists the lives before their pairs are looked at. A mark that
// cannot be read is a problem of its pair.
func (v *verifier) findLives() (err error) {
	v.Lives, err = v.view.Lives()
	if errors.Is(err, journal.ErrDamaged) {
		return nil
	}
	return err
}

// isLeftover says whether a life may be incomplete: it has no applied mark,
// and the log says that it is not needed, or does not say and the shard has
// another life with one.
func (v *verifier) isLeftover(shard sharding.ShardID, generation uint32) bool {
	other := false
	for i := range v.Lives {
		l := &v.Lives[i]
		if l.Shard != shard || !l.Marked {
			continue
		}
		if l.Generation == generation {
			return false
		}
		other = true
	}
	if v.leftover != nil {
		return v.leftover(shard, generation)
	}
	return other
}
