package eventlog

import (
	"fmt"

	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Leftovers is store.Options.Leftover as the lives in the log have it: every
// life but a shard's present one may be incomplete, and that too while its
// snapshot may be read in again.
func Leftovers(lives []statefile.Life) func(shard sharding.ShardID, generation uint32) bool {
	present := make(map[sharding.ShardID]*statefile.Life, len(lives))
	for i := range lives {
		present[lives[i].Shard] = &lives[i]
	}
	return func(shard sharding.ShardID, generation uint32) bool {
		l := present[shard]
		return l != nil && (l.Gone || l.Generation != generation || l.Install != nil)
	}
}

// VerifyLives checks that a store that was verified, as of the watermark in the
// log, has what the log counts on: of every life what was cut off the log, or
// the snapshot that it begins with, whole. cuts are the indexes before which
// the log has no entries.
func VerifyLives(r *store.Report, lives []statefile.Life, cuts map[sharding.ShardID]uint64) (problems []store.DamageError) {
	problem := func(shard sharding.ShardID, format string, args ...any) {
		problems = append(problems, store.DamageError{Where: fmt.Sprintf("shard %d", shard), What: fmt.Sprintf(format, args...)})
	}
	for i := range lives {
		l := &lives[i]
		if l.Gone {
			continue
		}
		mark := findLife(r, l)
		switch {
		case mark.Marked && mark.Applied.Index < cuts[l.Shard]:
			problem(l.Shard, "it is applied to index %d, the log begins behind %d", mark.Applied.Index, cuts[l.Shard])
		case mark.Marked:
		case l.Install != nil:
			in := install{Install: *l.Install, shard: &shard{id: l.Shard}}
			if err := in.verify(); err != nil {
				problem(l.Shard, "the snapshot it begins with: %v", err)
			}
		case cuts[l.Shard] > 0:
			problem(l.Shard, "it has no applied mark, the log begins behind index %d", cuts[l.Shard])
		}
	}
	return problems
}

func findLife(r *store.Report, l *statefile.Life) store.Life {
	for _, have := range r.Lives {
		if have.Shard == l.Shard && have.Generation == l.Generation {
			return have
		}
	}
	return store.Life{}
}
