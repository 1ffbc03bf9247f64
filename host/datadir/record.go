package datadir

import (
	"sync"
	"time"

	"github.com/hostd/hostd/sharding"
)

// Record is the identity of an open directory. What it says was written before.
// It is safe for concurrent use.
type Record struct {
	Node sharding.NodeID
	Disk string

	dir string
	mu  sync.Mutex // held while it is written, too
	id  Identity
}

// OpenRecord opens a directory as Open does.
func OpenRecord(dir string, node sharding.NodeID, now time.Time) (*Record, error) {
	id, err := Open(dir, node, now)
	if err != nil {
		return nil, err
	}
	return NewRecord(dir, id), nil
}

// NewRecord is the record of a directory with an identity.
func NewRecord(dir string, id Identity) *Record {
	return &Record{Node: id.Node, Disk: id.Disk, dir: dir, id: id}
}

// Now is the identity as it was written last. Its slices are shared.
func (r *Record) Now() Identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.id
}

// Save changes the identity durably where change says that it did. What could
// not be written has not changed.
func (r *Record) Save(change func(*Identity) bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.id
	if !change(&next) {
		return nil
	}
	if err := next.Write(r.dir); err != nil {
		return err
	}
	r.id = next
	return nil
}

// SaveLevel makes the directory one of the level.
func (r *Record) SaveLevel(level sharding.ClusterVersion) error {
	return r.Save(func(id *Identity) bool { return id.Raise(level) })
}
