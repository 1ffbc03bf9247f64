package eventlog

import (
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Replica consistency checks. Replicas that have applied the same entries must
// have the same rows. Each replica takes a checksum of its rows at fixed
// indexes and keeps the latest checksums. Now and then the leader writes a
// checksum to the log. A replica whose own checksum for that index differs
// reports the difference and continues; the voters then determine which
// replicas are wrong.

const (
	// checksumInterval is the number of entries between two checksums.
	checksumInterval = 1024
	// checksumsKept is the number of checksums kept for comparison. The kept
	// checksums cover more entries than are ever in flight in the log.
	checksumsKept = 16
	// comparedKept is the number of compared checksums kept for other nodes to
	// query.
	comparedKept = 2
)

// checksumHistory has the latest checksums of a shard, oldest first.
type checksumHistory struct {
	taken    []journal.Proof // used by the applying goroutine only
	compared []journal.Proof // this replica's own, at indexes that the log named
}

// Difference is reported if a checksum in the log differs from this replica's
// own.
type Difference struct {
	Shard sharding.ShardID
	Own   journal.Proof
}

// takeChecksum takes the checksum of a shard at its applied index.
func (m *Machine) takeChecksum(sh *shard) *journal.Proof {
	m.updateChecksums(sh)
	d := &sh.digests
	if len(d.taken) == checksumsKept {
		d.taken = slices.Delete(d.taken, 0, 1)
	}
	d.taken = append(d.taken, journal.Proof{Index: sh.applied.Index, Checksum: sh.rows.Sums().Digest()})
	p := d.taken[len(d.taken)-1]
	return &p
}

// compareChecksum compares a checksum in the log with this replica's own. If
// this replica has none for that index, for example after a restart, nothing is
// compared.
func (m *Machine) compareChecksum(sh *shard, body []byte) error {
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
		m.opts.Logger.Error("replica checksum of a shard differs from its leader's", "shard_id", uint64(sh.id), "index", p.Index)
		m.opts.Differs(Difference{Shard: sh.id, Own: own})
	}
	return nil
}

// ComparedChecksum returns this replica's own checksum at an index, if the
// index is one of the latest for which the log contained a checksum. Otherwise
// it returns false.
func (r *Reader) ComparedChecksum(id sharding.ShardID, index uint64) (d journal.RowsDigest, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil && sh.readError() == nil {
		for _, own := range sh.digests.compared {
			if own.Index == index {
				return own.Checksum, true
			}
		}
	}
	return d, false
}
