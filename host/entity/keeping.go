package entity

import "github.com/hostd/hostd/journal"

// Keeping is what was set of how much the entities of a type keep, in the place
// of what the type says. It decides what the next snapshots of these entities
// carry; what they carry is what every replica keeps.
type Keeping struct {
	Records    uint64 // as Type.Retain, where RecordsSet
	RecordsSet bool
	Snapshots  int // as Type.SnapshotKeep; 0: not set
}

// retains returns what a snapshot of the type, taken now, carries.
func (c *core) retains(t *Type) (retain uint64, snapshots uint8) {
	var set Keeping
	if c.opts.Keeping != nil {
		set = c.opts.Keeping(t.Name)
	}
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
