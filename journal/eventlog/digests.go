package eventlog

import (
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Replicas that have applied the same entries have the same rows. Each takes the
// digest of its rows at the same indexes, and keeps the last of them. The leader
// puts one into the log now and then; whoever finds another at that index says
// so, and goes on: which of them is wrong is for the voters to find.

const (
	// digestEvery is how many entries there are between two digests.
	digestEvery = 1024
	// digestsKept are there to be compared with: entries on their way through
	// the log are fewer.
	digestsKept = 16
	// comparedKept are kept for others to ask for.
	comparedKept = 2
)

// digests are those of a shard, the newest last.
type digests struct {
	taken    []journal.Proof // of the applying goroutine
	compared []journal.Proof // this replica's own, at indexes that the log named
}

// Difference is a digest in the log that is another than this replica's.
type Difference struct {
	Shard sharding.ShardID
	Own   journal.Proof
}

// takeDigest takes the digest of a shard as of what is applied.
func (m *Machine) takeDigest(sh *shard) *journal.Proof {
	m.sumHeads(sh)
	d := &sh.digests
	if len(d.taken) == digestsKept {
		d.taken = slices.Delete(d.taken, 0, 1)
	}
	d.taken = append(d.taken, journal.Proof{Index: sh.applied.Index, Checksum: sh.rows.Sums().Digest()})
	p := d.taken[len(d.taken)-1]
	return &p
}

// applyProof compares a digest in the log with this replica's own. One that is
// not kept, as after a start, is not compared.
func (m *Machine) applyProof(sh *shard, body []byte) error {
	p, err := journal.DecodeProof(body)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(sh.digests.taken, func(o journal.Proof) bool { return o.Index == p.Index })
	if i < 0 {
		return nil
	}
	own := sh.digests.taken[i]
	m.mu.Lock()
	if len(sh.digests.compared) == comparedKept {
		sh.digests.compared = slices.Delete(sh.digests.compared, 0, 1)
	}
	sh.digests.compared = append(sh.digests.compared, own)
	m.mu.Unlock()
	if own != p {
		m.opts.Logger.Error("the rows of a shard are not those of its leader", "shard_id", uint64(sh.id), "index", p.Index)
		m.opts.Differs(Difference{Shard: sh.id, Own: own})
	}
	return nil
}

// Compared returns this replica's digest at an index at which the log named one,
// one of the last; false where there is none.
func (r *Reader) Compared(id sharding.ShardID, index uint64) (d journal.RowsDigest, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil && sh.unreadable() == nil {
		for _, own := range sh.digests.compared {
			if own.Index == index {
				return own.Checksum, true
			}
		}
	}
	return d, false
}
