package modules

import (
	"context"
	"time"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// RolloutPlan is the part that a module serves first, and the growing shares of
// the next steps.
type RolloutPlan struct {
	meta.Part
	Steps []uint32      // shares of sharding.Buckets, increasing
	Pause time.Duration // wait before each step; 0 if there are no steps
	Rules string        // see trial.ParseRules
}

// RolloutBegin requests that a module serves a part of a type.
type RolloutBegin struct {
	EntityType string
	Digest     journal.Digest
	RolloutPlan
	By string // principal that requested it, KIND:NAME
	// Check checks whether the module is compatible with a type, once all types
	// that change together are known. It returns an error, or the principal
	// that forced the check. nil skips it.
	Check    func(ctx context.Context, entityType string) (forcedBy string, err error)
	Approver approver // as in an Activation
	Truncated
}

// RolloutOrder requests a change of a rollout.
type RolloutOrder struct {
	EntityType string
	Action     modulev1.ChangeRolloutRequest_Action
	Force      bool
	By         string
	Approver   approver // as in an Activation
}

// RolloutState is the state of a type's rollout.
type RolloutState struct {
	EntityType string
	Older      journal.Digest // module that serves the other entities
	Revision   uint64         // revision of the activation
	// Rollout is nil if one module serves all entities.
	*meta.Rollout
	Counts *RolloutCounts // nil if the counts are not known
	// Aborted describes the end of the last rollout, if the last change was an
	// abort.
	Aborted *meta.ActivationChange
	Shadow  *ShadowReport // nil without a shadow module
}

// ShadowReport describes a shadow module of a type and how its decisions
// compare with the decisions of the serving module. Silent is the number of
// nodes that did not answer.
type ShadowReport struct {
	trial.ShadowSetting
	trial.Sum
	MissingNodes int
}

// RolloutCounts are the counts of both modules since a rollout began. Silent is
// the number of nodes that did not answer.
type RolloutCounts struct {
	Older, Newer trial.Counts
	MissingNodes int
}
