package datadir

import (
	"sync"
	"time"

	"github.com/hostd/hostd/sharding"
)

// Record is the identity of an open directory. It returns only an identity
// that has been written. It is safe for concurrent use.
type Record struct {
	Node sharding.NodeID
	Disk string

	dir string
	mu  sync.Mutex // also held while the identity is written
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

// NewRecord returns the record of a directory with the given identity.
func NewRecord(dir string, id Identity) *Record {
	return &Record{Node: id.Node, Disk: id.Disk, dir: dir, id: id}
}

// Now returns the identity that was last written. The caller must not modify
// its slices.
func (r *Record) Now() Identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.id
}

// Save calls change and, if it returns true, writes the changed identity
// durably. If the write fails, the identity has not changed.
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

// SaveLevel raises the directory's cluster version to level.
func (r *Record) SaveLevel(level sharding.ClusterVersion) error {
	return r.Save(func(id *Identity) bool { return id.Raise(level) })
}
