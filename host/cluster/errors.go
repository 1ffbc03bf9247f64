package cluster

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
)

// ErrUnknownOutcome means that a metadata command was in flight when the
// leadership of the metadata shard or the connection to its leader was lost.
// The command may take effect. The error is a request.ErrOutcomeUnknown, so
// that callers see that meaning.
var ErrUnknownOutcome = fmt.Errorf("the outcome of the metadata command is unknown; check the current state before you repeat it: %w", request.ErrOutcomeUnknown)

// refusedProposal converts the error of a command that did not enter the log of
// the metadata shard.
func refusedProposal(err error) error {
	switch {
	case errors.Is(err, raftgroup.ErrBusy):
		return fmt.Errorf("%w: %w", request.ErrBusy, err)
	case errors.Is(err, raftgroup.ErrStopped), errors.Is(err, raftgroup.ErrNotLeader), errors.Is(err, raftgroup.ErrUnknownShard):
		return &sharding.NotLeaderError{Shard: sharding.MetaShard}
	}
	return err
}

// refusedEntry converts the apply result of a command that was in the log.
func refusedEntry(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, eventlog.ErrStopped): // other replicas may apply it
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return fmt.Errorf("%w: %w", request.ErrNotApplied, err)
}
