package status

import (
	"fmt"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/journal"
)

// FutureSequenceError: the entity has not reached the requested sequence yet.
type FutureSequenceError struct{ Asked, Last journal.Sequence }

func (e *FutureSequenceError) Error() string {
	return fmt.Sprintf("the entity is at sequence %d, so it has no state at %d", e.Last, e.Asked)
}

// Code implements Coded.
func (e *FutureSequenceError) Code() connect.Code { return connect.CodeInvalidArgument }

// StateTruncatedError: the events from which the requested state would be replayed
// were compacted away, and no older snapshot is stored. From is the first
// sequence whose state can be computed, or 0 if there is none.
type StateTruncatedError struct{ From journal.Sequence }

func (e *StateTruncatedError) Error() string {
	if e.From == 0 {
		return "the first events of the entity were truncated, and it has no snapshot"
	}
	return fmt.Sprintf("the first events of the entity were truncated; states are available from sequence %d on", e.From)
}

// Code implements Coded.
func (e *StateTruncatedError) Code() connect.Code { return connect.CodeOutOfRange }
