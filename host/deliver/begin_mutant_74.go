//go:build mutant_74

package deliver

const forgets = false

// begin is a planted fault: a shard that is led again goes on behind what was
// read in an earlier term, and skips what of it had not arrived.
func begin(l Lead, before *shard) *shard {
	s := newShard(l)
	if before != nil {
		s.cursor = before.cursor
	}
	return s
}
