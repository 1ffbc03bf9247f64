//go:build !mutant_74

package deliver

// forgets: of a shard that is led no more nothing is kept.
const forgets = true

// begin begins with all that the outbox of a shard has, whatever there was of
// it in an earlier term.
func begin(l Lead, _ *shard) *shard { return newShard(l) }
