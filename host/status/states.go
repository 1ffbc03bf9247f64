package status

import (
	"fmt"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/journal"
)

// FutureSequenceError: the entity has not reached the requested sequence yet.
type FutureSequenceError struct{ Asked, Last journal.Sequence }

func (e *FutureSequenceError) Error() string {
	return fmt.Sprintf("the entity is at sequence %d, there is no state at %d", e.Last, e.Asked)
}

// Code implements Coded.
func (e *FutureSequenceError) Code() connect.Code { return connect.CodeInvalidArgument }

// StateCutError: the events from which the requested state would be replayed
// were compacted away, and no older snapshot is stored. From is the first
// sequence whose state can be computed, or 0 if there is none.
type StateCutError struct{ From journal.Sequence }

func (e *StateCutError) Error() string {
	if e.From == 0 {
		return "the first events of the entity were cut, and no snapshot of it is kept"
	}
	return fmt.Sprintf("the first events of the entity were cut; there are states from sequence %d on", e.From)
}

// Code implements Coded.
func (e *StateCutError) Code() connect.Code { return connect.CodeOutOfRange }
