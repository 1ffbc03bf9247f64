package store

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
)

var (
	// ErrClosed: the store is closed or closing. A retry cannot succeed.
	ErrClosed = errors.New("journal store is closed")
	// ErrNoRoom: the disk has no room for what the store would write. The data
	// are as good as before; free some space and open the store again.
	ErrNoRoom = errors.New("journal store: the disk has no room")
	// ErrValueTooLarge: a value over MaxValueBytes. Nothing of the batch after
	// it was written; the caller must stop.
	ErrValueTooLarge = errors.New("journal store: value too large")
	// ErrVersion: a batch whose version does not follow the last one.
	ErrVersion = errors.New("journal store: version out of order")
)

// DamageError says that stored bytes contradict a checksum, a length or what
// was promised, where that is, and what an operator can do. It is
// journal.ErrDamaged. Nothing of what it names was served.
type DamageError struct {
	// Where is a file's base name, or a class of keys with the shard.
	Where string
	// What is wrong there.
	What string
	// Action is what can be done; empty where the caller knows better.
	Action string
}

func (e *DamageError) Error() string {
	s := fmt.Sprintf("journal store: damage in %s: %s", e.Where, e.What)
	if e.Action != "" {
		s += "; " + e.Action
	}
	return s
}

// Unwrap makes every DamageError journal.ErrDamaged.
func (e *DamageError) Unwrap() error { return journal.ErrDamaged }

const actionRebuild = "stop the node, keep a copy of its data directory, run hostd verify on it, and let 'hostd recover --rejoin' rebuild a node of several from its peers; restore a lone one from a backup"

func damagedValue(key []byte, what string) error {
	return &DamageError{Where: DescribeKey(key), What: what}
}
