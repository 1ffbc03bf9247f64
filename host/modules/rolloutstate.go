package modules

import (
	"context"
	"time"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// RolloutPlan is which part a module serves, and the larger ones that follow.
type RolloutPlan struct {
	meta.Part
	Steps []uint32      // shares of sharding.Buckets, rising
	Pause time.Duration // before each of them; 0 without any
	Rules string        // see trial.ParseRules
}

// RolloutBegin is a module that is to serve a part of a type.
type RolloutBegin struct {
	EntityType string
	Digest     journal.Digest
	RolloutPlan
	By string // who has it done, KIND:NAME
	// Check looks at how the module fits a type, once all that go together are
	// known; it refuses, or says who forces it. Nil: nothing is looked at.
	Check func(ctx context.Context, entityType string) (forcedBy string, err error)
	Allow AllowRollout
	Truncated
}

// AllowRollout says whether the module, which has these types, may serve this one, and
// to whom the type belongs from then on. Nil allows it to everybody, and leaves
// the owner.
type AllowRollout func(ctx context.Context, entityType, owner string, types []string) (string, error)

// RolloutOrder is what is to become of a rollout.
type RolloutOrder struct {
	EntityType string
	Action     modulev1.ChangeRolloutRequest_Action
	Force      bool
	By         string
	Allow      AllowRollout
}

// RolloutState is that of a type.
type RolloutState struct {
	EntityType string
	Older      journal.Digest // what serves the other entities
	Revision   uint64         // of the binding
	// Rollout is nil where one module serves all.
	*meta.Rollout
	Counts *RolloutCounts // nil where they are not known
	// Aborted is how the last rollout ended, where that was what happened last.
	Aborted *meta.BindingChange
	Shadow  *ShadowReport // nil where no other module decides too
}

// ShadowReport is of a module that decides a share of a type's commands too, and how
// that compares with what came of them. Silent nodes did not say what they
// compared.
type ShadowReport struct {
	trial.Wish
	trial.Sum
	Silent int
}

// RolloutCounts are what the two modules of a rollout did since it began. Silent nodes
// did not say what they counted.
type RolloutCounts struct {
	Older, Newer trial.Counts
	Silent       int
}
