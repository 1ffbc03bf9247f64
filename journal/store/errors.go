package store

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
)

var (
	// ErrClosed: the store is closed or closing. Retrying fails again.
	ErrClosed = errors.New("journal store is closed")
	// ErrNoRoom: the disk has no space for the store's writes. The data is
	// intact; free space and open the store again.
	ErrNoRoom = errors.New("journal store: no space left on the disk")
	// ErrValueTooLarge: a value exceeds maxValueBytes. The parts of the batch
	// after that value were not written; the caller must stop.
	ErrValueTooLarge = errors.New("journal store: value too large")
	// ErrVersion: the version of a batch is not above the version of the last
	// batch.
	ErrVersion = errors.New("journal store: version out of order")
)

// DamageError reports stored bytes that contradict a checksum, a length or the
// log, where they are, and the action that an operator can take. It wraps
// journal.ErrDamaged. The damaged data was not served.
type DamageError struct {
	// Where is a file's base name, or a class of keys and the shard.
	Where string
	// What is the kind of damage.
	What string
	// Action is the advice to the operator. It is empty if the caller can give
	// better advice.
	Action string
}

func (e *DamageError) Error() string {
	s := fmt.Sprintf("journal store: damage in %s: %s", e.Where, e.What)
	if e.Action != "" {
		s += "; " + e.Action
	}
	return s
}

// Unwrap makes every DamageError match journal.ErrDamaged.
func (e *DamageError) Unwrap() error { return journal.ErrDamaged }

const actionRebuild = "stop the node, copy its data directory and run 'hostd verify' on it; then rebuild the node from its peers with 'hostd recover --rejoin', or restore a single node from a backup"

func damagedValue(key []byte, what string) error {
	return &DamageError{Where: DescribeKey(key), What: what}
}
