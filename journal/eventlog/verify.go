package eventlog

import (
	"fmt"

	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Leftovers returns a store.Options.Leftover for the generations in the log:
// all generations except a shard's current one may be incomplete. The current
// generation may be incomplete too while its snapshot may have to be read in
// again.
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

// VerifyGenerations checks that a verified store, as of the watermark in the
// log, has everything that the log relies on: for every current generation, the
// entries that were truncated from the log, or the complete snapshot from which
// it starts. cuts has the indexes up to which the logs were truncated.
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
			problem(l.Shard, "the store is applied up to index %d, but the log begins after %d", mark.Applied.Index, cuts[l.Shard])
		case mark.Marked:
		case l.Install != nil:
			in := install{Install: *l.Install, shard: &shard{id: l.Shard}}
			if err := in.verify(); err != nil {
				problem(l.Shard, "the snapshot that the replica starts from: %v", err)
			}
		case cuts[l.Shard] > 0:
			problem(l.Shard, "the store has no applied state, but the log begins after index %d", cuts[l.Shard])
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
