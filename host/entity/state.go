package entity

import (
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// guestSeed is the number a call's random stream starts from: FNV-1a over entity,
// sequence and command id, mixed. It is not fit for secrets.
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

// RetentionOverride is what was set of how much the entities of a type keep, in
// the place of what the type says. It decides what the next snapshots of these
// entities carry; what they carry is what every replica keeps.
type RetentionOverride struct {
	Records    uint64 // as Type.Retain, where RecordsSet
	RecordsSet bool
	Snapshots  int // as Type.SnapshotKeep; 0: not set
}

// Retains returns what a snapshot of the type, taken now, carries.
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

// defaultSnapshots is how many snapshots of an entity stay where nothing says.
const defaultSnapshots = 2
