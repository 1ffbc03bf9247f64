package entity

import (
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// guestSeed returns the seed of a call's random stream: FNV-1a over entity,
// sequence and command id, with a final mix. It is predictable, so it must not
// be used for secrets.
func guestSeed(e sharding.EntityID, at journal.Sequence, id journal.CommandID) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for _, s := range [...]string{e.Type, e.ID, string(id)} {
		for i := 0; i < len(s); i++ {
			h = (h ^ uint64(s[i])) * prime
		}
		h *= prime
	}
	h ^= uint64(at)
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// RetentionOverride overrides how much history the entities of a type keep. It
// determines the retention in the next snapshots of these entities, which every
// replica then applies.
type RetentionOverride struct {
	Records    uint64 // like Type.Retain, if RecordsSet
	RecordsSet bool
	Snapshots  int // like Type.SnapshotKeep; 0 means not set
}

// Retains returns the retention for a snapshot of the type taken now.
func (t *Type) Retains(set RetentionOverride) (retain uint64, snapshots uint8) {
	retain, n := t.Retain, t.SnapshotKeep
	if set.RecordsSet {
		retain = set.Records
	}
	if set.Snapshots > 0 {
		n = set.Snapshots
	}
	if n <= 0 {
		n = defaultSnapshots
	}
	return retain, uint8(min(n, journal.MaxSnapshots))
}

// defaultSnapshots is the default number of snapshots kept for an entity.
const defaultSnapshots = 2
