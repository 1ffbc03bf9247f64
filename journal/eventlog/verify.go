package eventlog

import (
	"fmt"

	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Leftovers is store.Options.Leftover as the generations in the log have it:
// every generation but a shard's present one may be incomplete, and that too
// while its snapshot may be read in again.
func Leftovers(generations []statefile.Generation) func(shard sharding.ShardID, generation uint32) bool {
	present := make(map[sharding.ShardID]*statefile.Generation, len(generations))
	for i := range generations {
		present[generations[i].Shard] = &generations[i]
	}
	return func(shard sharding.ShardID, generation uint32) bool {
		l := present[shard]
		return l != nil && (l.Gone || l.Generation != generation || l.Install != nil)
	}
}

// VerifyGenerations checks that a store that was verified, as of the watermark
// in the log, has what the log counts on: of every generation what was cut off
// the log, or the snapshot that it begins with, whole. cuts are the indexes
// before which the log has no entries.
func VerifyGenerations(r *store.Report, generations []statefile.Generation, cuts map[sharding.ShardID]uint64) (problems []store.DamageError) {
	problem := func(shard sharding.ShardID, format string, args ...any) {
		problems = append(problems, store.DamageError{Where: fmt.Sprintf("shard %d", shard), What: fmt.Sprintf(format, args...)})
	}
	for i := range generations {
		l := &generations[i]
		if l.Gone {
			continue
		}
		mark := findGeneration(r, l)
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

func findGeneration(r *store.Report, l *statefile.Generation) store.Generation {
	for _, have := range r.Generations {
		if have.Shard == l.Shard && have.Generation == l.Generation {
			return have
		}
	}
	return store.Generation{}
}
