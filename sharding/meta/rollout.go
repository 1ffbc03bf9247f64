package meta

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hostd/hostd/sharding"
)

// Limits of rollouts.
const (
	// MaxRolloutStay limits how many entities can stay with the newer module
	// when the other entities go back to the older module.
	MaxRolloutStay = 100
	// MaxRolloutSteps limits the number of remaining steps.
	MaxRolloutSteps = 32
	// MaxRolloutNote limits the size of the note, in bytes.
	MaxRolloutNote = 1024

	maxPrefixBytes = 255
	maxRulesBytes  = 256
)

// RolloutState is the state of a rollout.
type RolloutState string

// Rollout states:
//
//	running <--> paused --share reaches 100%--> (bound)
//	   |            |
//	   +- aborting -+ --held--> aborted, or ended
//
// A rollout can leave aborting and held again: if the older module cannot be
// checked, nothing changes. A rollout starts running or paused; a rollout from
// an imported cluster starts paused or aborted.
//
// An activation that needs a proof is a rollout whose part is empty, see
// verifying.go:
//
//	verifying --proved or forced--> (bound)
//	   |    |
//	   |    +--compatibility check fails--> refused
//	   +--aborted--> (ended)
const (
	// RolloutRunning: each step is taken when it is due.
	RolloutRunning RolloutState = "running"
	// RolloutPaused: the rollout stays as it is until it is resumed or aborted.
	RolloutPaused RolloutState = "paused"
	// RolloutAborting: its entities are to go back to the older module.
	RolloutAborting RolloutState = "aborting"
	// RolloutHeld: its entities are going back, and their writes are paused
	// meanwhile.
	RolloutHeld RolloutState = "held"
	// RolloutAborted: only entities on which the older module fails are left.
	RolloutAborted RolloutState = "aborted"
	// RolloutVerifying: the module serves no entity until it is proved to read
	// the snapshots of all truncated histories; then it serves all entities.
	// From sharding.VersionVerifyingRollouts on.
	RolloutVerifying RolloutState = "verifying"
	// RolloutRefused: the module failed verification and the rollout is over. The
	// rollout is kept, for its note, until another module is activated.
	RolloutRefused RolloutState = "refused"
)

// rolloutNext lists the successors of each state.
var rolloutNext = map[RolloutState][]RolloutState{
	"":               {RolloutRunning, RolloutPaused, RolloutAborted, RolloutVerifying},
	RolloutRunning:   {RolloutRunning, RolloutPaused, RolloutAborting},
	RolloutPaused:    {RolloutRunning, RolloutPaused, RolloutAborting},
	RolloutAborting:  {RolloutRunning, RolloutPaused, RolloutAborting, RolloutHeld},
	RolloutHeld:      {RolloutRunning, RolloutPaused, RolloutAborting, RolloutAborted},
	RolloutAborted:   {RolloutRunning, RolloutPaused, RolloutHeld},
	RolloutVerifying: {RolloutRefused},
	RolloutRefused:   {RolloutRunning, RolloutPaused, RolloutVerifying},
}

// Part is a subset of a type's entities: those in the first Share buckets (see
// sharding.EntityID.Bucket), and those whose ids start with Prefix.
type Part struct {
	Share  uint32 `json:"share,omitempty"` // number of buckets, of sharding.Buckets
	Prefix string `json:"prefix,omitempty"`
}

// Contains reports whether an entity belongs to the part.
func (p Part) Contains(id sharding.EntityID) bool {
	return p.Prefix != "" && strings.HasPrefix(id.ID, p.Prefix) || p.Share > 0 && id.Bucket() < p.Share
}

// Rollout is a module that serves a part of a type's entities instead of the
// bound module, until it is bound itself or the entities go back. It must not
// be modified.
type Rollout struct {
	Digest    Digest       `json:"digest"`
	TypeIndex int          `json:"typeIndex"` // index of the type in the module's manifest
	State     RolloutState `json:"state"`
	Part
	// First is the part with which the rollout started, and Began is the revision
	// at which it started.
	First Part   `json:"first,omitzero"`
	Began uint64 `json:"began,omitempty"` // set when the command is applied
	// Types are the names of all types that are rolled out together.
	Types []string `json:"types"`
	// Stay are the ids of entities that the module serves although they are not
	// in the part, because the older module fails on them; at most
	// MaxRolloutStay.
	Stay []string `json:"stay,omitempty"`
	// Steps are the remaining shares, in increasing order. Pause is the time
	// between two steps, in nanoseconds, and DueAt is the time of the next step,
	// in Unix nanoseconds.
	Steps []uint32 `json:"steps,omitempty"`
	Pause int64    `json:"pause,omitempty"`
	DueAt int64    `json:"dueAt,omitempty"`
	// Rules are the conditions that abort the rollout. They are opaque to this
	// package; the node that runs the rollout interprets them.
	Rules string `json:"rules,omitempty"`
	// Snapshots, Truncated and Proved become the fields of the same name in Bound
	// once the module is bound.
	Snapshots []Digest `json:"snapshots,omitempty"`
	Truncated []Digest `json:"truncated,omitempty"`
	Proved    bool     `json:"proved,omitempty"`
	// Accept means that states that differ between the modules are intended, in
	// every step. From sharding.VersionSnapshotProofs on.
	Accept bool `json:"accept,omitempty"`
	// Force and Limits belong to a verifying rollout. If Force is set, the module
	// is activated without a proof although it failed the check. Limits become the
	// type's limits; nil leaves them unchanged. From
	// sharding.VersionVerifyingRollouts on.
	Force  bool    `json:"force,omitempty"`
	Limits *Limits `json:"limits,omitempty"`
	// ForcedBy is the principal that started the rollout although the module
	// failed the compatibility check. BackForcedBy is the principal that forced
	// all entities back although the older module fails on some of them.
	ForcedBy     string `json:"forcedBy,omitempty"`
	BackForcedBy string `json:"backForcedBy,omitempty"`
	By           string `json:"by,omitempty"`   // principal that requested the current state
	Note         string `json:"note,omitempty"` // for display
}

// Serves reports whether the rollout's module serves an entity of the type.
func (r *Rollout) Serves(id sharding.EntityID) bool {
	return r.Contains(id) || slices.Contains(r.Stay, id.ID)
}

// IsActive reports whether a rollout is in progress. It returns false if the
// rollout has ended and only entities that stay are left.
func (r *Rollout) IsActive() bool {
	return r != nil && r.State != RolloutAborted && r.State != RolloutRefused
}

// PutRollout is the next state of the rollout of one type.
type PutRollout struct {
	EntityType string     `json:"entityType"`
	Over       uint64     `json:"over"`            // revision of the binding
	Owner      *Ownership `json:"owner,omitempty"` // as in WithOwner
	// Rollout is nil if the rollout ends: its module is then bound if Promote
	// is set, and serves nothing otherwise.
	Rollout *Rollout `json:"rollout,omitempty"`
	Promote bool     `json:"promote,omitempty"`
	// ForcedBy is the principal that forced the end although the older module
	// fails on entities.
	ForcedBy string `json:"forcedBy,omitempty"`
	// Truncated lists the modules that were proved in the cluster in which the
	// rollout started, see BindRestored; from sharding.VersionSnapshotProofs on.
	Truncated []Digest `json:"truncated,omitempty"`
}

// rolloutSet has the members of a rollout command.
type rolloutSet struct {
	Kind ChangeKind   `json:"kind,omitempty"`
	Put  []PutRollout `json:"put"`
}

// PutRollouts returns the command that changes the rollouts of types that are
// rolled out together, all or none. kind is recorded in the change logs of the
// bindings, unless it is empty. The command fails with ErrConflict if a type is
// served under a different revision by now, or if an entity would go back to
// the older module unchecked. at is in Unix nanoseconds. It requires
// sharding.VersionRollouts.
func PutRollouts(kind ChangeKind, at int64, put ...PutRollout) []byte {
	return encode(command{Op: opPutRollouts, At: at, activationCommand: activationCommand{Rollouts: &rolloutSet{Kind: kind, Put: put}}})
}

// putRollouts applies the command of PutRollouts.
func putRollouts(t *transition, c command) (Result, error) {
	if level := t.view.ClusterVersion(); level < sharding.VersionRollouts {
		return Result{}, fmt.Errorf("%w: %s", ErrClusterVersion, sharding.VersionRollouts.NeededBy("rollouts need", level))
	}
	set := *c.Rollouts
	if err := t.checkBy(c.By); err != nil {
		return Result{}, err
	}
	if len(set.Put) == 0 || len(set.Put) > MaxTypesPerModule {
		return Result{}, fmt.Errorf("%w: the command has rollouts of %d types, 1 to %d are allowed", ErrInvalid, len(set.Put), MaxTypesPerModule)
	}
	switch set.Kind {
	case "", ChangeActivate, ChangeCanary, ChangePromote, ChangeAbort:
	default:
		return Result{}, fmt.Errorf("%w: invalid kind of change for a rollout: %.40q", ErrInvalid, string(set.Kind))
	}
	var last Result
	for i, p := range set.Put {
		if slices.ContainsFunc(set.Put[:i], func(o PutRollout) bool { return o.EntityType == p.EntityType }) {
			return Result{}, fmt.Errorf("%w: the command has two rollouts of %.64q", ErrInvalid, p.EntityType)
		}
		b, err := p.checkActivation(t)
		if err == nil && (set.Kind == ChangeActivate) != (p.Promote && b.Rollout.IsVerifying()) {
			err = fmt.Errorf("%w: the change kind must be activate if and only if it promotes a verifying rollout", ErrConflict)
		}
		if err != nil {
			return Result{}, err
		}
		last = p.put(t, b, ActivationChange{Kind: set.Kind, At: c.At, By: c.By, Forced: p.ForcedBy != "" || p.Rollout != nil && p.Rollout.ForcedBy != ""})
	}
	return last, nil
}

// checkActivation returns the binding that p applies to, or an error that says
// why p must be rejected.
func (p *PutRollout) checkActivation(t *transition) (Activation, error) {
	b, bound := t.view.activations[p.EntityType]
	if err := t.setOwner(&b, p.Owner); bound && err != nil {
		return b, err
	}
	var was Rollout
	if b.Rollout != nil {
		was = *b.Rollout
	}
	switch level := t.view.ClusterVersion(); {
	case !bound:
		return b, fmt.Errorf("%w: %.64q", ErrUnknownType, p.EntityType)
	case len(p.Truncated) > MaxTruncatedModules:
		return b, fmt.Errorf("%w: %d snapshot modules, at most %d are allowed", ErrInvalid, len(p.Truncated), MaxTruncatedModules)
	case level < sharding.VersionSnapshotProofs && (len(p.Truncated) > 0 || p.Rollout != nil && p.Rollout.Accept):
		return b, fmt.Errorf("%w: at cluster version %d a rollout cannot name snapshot modules", ErrClusterVersion, level)
	case b.Revision != p.Over:
		return b, fmt.Errorf("%w: %s is served under revision %d, not %d", ErrConflict, p.EntityType, b.Revision, p.Over)
	case p.Rollout == nil && b.Rollout == nil:
		return b, fmt.Errorf("%w: %s has no rollout", ErrConflict, p.EntityType)
	case p.Rollout == nil && p.Promote && (was.State == RolloutHeld || was.State == RolloutAborting):
		return b, fmt.Errorf("%w: entities of %s are returning to the old module", ErrConflict, p.EntityType)
	case p.Rollout == nil && p.Promote && was.State == RolloutRefused:
		return b, fmt.Errorf("%w: a rollout of the module was rejected for %s", ErrConflict, p.EntityType)
	case p.Rollout == nil && p.Promote && was.IsVerifying() && (p.ForcedBy == "" || !was.Force) && !t.view.isProved(b):
		return b, fmt.Errorf("%w: no verification shows that module %s reads all stored states of %s", ErrConflict, was.Digest, p.EntityType)
	case p.Rollout == nil && !p.Promote && !b.Rollout.IsServing():
		// The rollout ends without having served anything.
	case p.Rollout == nil && !p.Promote && was.State != RolloutHeld:
		return b, fmt.Errorf("%w: entities of %s would return to the old module while they accept writes", ErrConflict, p.EntityType)
	case p.Rollout == nil && !p.Promote && len(was.Stay) > 0 && p.ForcedBy == "":
		return b, fmt.Errorf("%w: the old module fails on entities of %s", ErrConflict, p.EntityType)
	}
	if err := checkText("forcedBy", p.ForcedBy, MaxForcedByBytes); err != nil || p.Rollout == nil {
		return b, err
	}
	if err := p.Rollout.check(t.view, b); err != nil {
		return b, err
	}
	return b, p.Rollout.checkTransition(was, b, p.ForcedBy != "")
}

// check validates a rollout, including whether its module can serve the type.
func (r *Rollout) check(v *View, b Activation) error {
	m, known := v.modules[r.Digest]
	switch {
	case !known:
		return fmt.Errorf("%w: %s", ErrUnknownModule, r.Digest)
	case r.TypeIndex < 0 || r.TypeIndex >= len(m.EntityTypes) || m.EntityTypes[r.TypeIndex] != b.EntityType:
		return fmt.Errorf("%w: the module does not serve %.64q", ErrUnknownType, b.EntityType)
	case m.ShardKeys[b.EntityType] != b.ShardKey:
		return fmt.Errorf("%w: entities of type %s are sharded by %s, but the module shards them by %s", ErrShardKey, b.EntityType, b.ShardKey, m.ShardKeys[b.EntityType])
	case r.Digest == b.Digest:
		return fmt.Errorf("%w: the module already serves all entities of %s", ErrConflict, b.EntityType)
	case r.Share >= sharding.Buckets || r.First.Share >= sharding.Buckets:
		return fmt.Errorf("%w: invalid share %d of %d", ErrInvalid, r.Share, sharding.Buckets)
	case len(r.Stay) > MaxRolloutStay || len(r.Steps) > MaxRolloutSteps || r.Pause < 0 || r.DueAt < 0 || len(r.Snapshots) > MaxSnapshotModules || len(r.Truncated) > MaxTruncatedModules:
		return fmt.Errorf("%w: invalid rollout with %d steps and %d pinned entities", ErrInvalid, len(r.Steps), len(r.Stay))
	case !slices.Contains(r.Types, b.EntityType) || len(r.Types) > MaxTypesPerModule:
		return fmt.Errorf("%w: the rollout names %d types, or it does not name %.64q", ErrInvalid, len(r.Types), b.EntityType)
	}
	if err := r.checkVerifying(v, b); err != nil {
		return err
	}
	before := r.Share
	for _, step := range r.Steps {
		if step <= before || step > sharding.Buckets {
			return fmt.Errorf("%w: invalid step to %d of %d after %d", ErrInvalid, step, sharding.Buckets, before)
		}
		before = step
	}
	for i, id := range r.Stay {
		if err := (sharding.EntityID{Type: b.EntityType, ID: id}).Validate(); err != nil || slices.Contains(r.Stay[:i], id) {
			return fmt.Errorf("%w: invalid or duplicate pinned entity: %.64q", ErrInvalid, id)
		}
	}
	return cmp.Or(checkText("prefix", r.Prefix, maxPrefixBytes), checkText("prefix", r.First.Prefix, maxPrefixBytes), checkText("rules", r.Rules, maxRulesBytes),
		checkText("note", r.Note, MaxRolloutNote), checkText("forcedBy", r.ForcedBy, MaxForcedByBytes), checkText("backForcedBy", r.BackForcedBy, MaxForcedByBytes), checkText("by", r.By, MaxForcedByBytes))
}

// checkTransition rejects invalid state changes, and changes that would remove
// entities from the newer module outside of an abort.
func (r *Rollout) checkTransition(was Rollout, b Activation, forced bool) error {
	if !slices.Contains(rolloutNext[was.State], r.State) {
		return fmt.Errorf("%w: the rollout of %s is %s and cannot become %.40q", ErrConflict, b.EntityType, cmp.Or(string(was.State), "over"), string(r.State))
	}
	stay := func(id string) bool { return slices.Contains(r.Stay, id) }
	begins := was.State == "" || was.State == RolloutRefused || was.State == RolloutAborted && r.State != RolloutHeld
	switch {
	case r.State == RolloutVerifying:
		return nil // the rollout starts
	case r.State == RolloutRefused && r.Digest == was.Digest:
		return nil
	case !forced && slices.ContainsFunc(was.Stay, func(id string) bool { return !stay(id) }):
		return fmt.Errorf("%w: the list of pinned entities of %s is incomplete", ErrConflict, b.EntityType)
	case r.State == RolloutAborted && (r.Part != Part{} || len(r.Stay) == 0):
		return fmt.Errorf("%w: an aborted rollout of %s may contain only pinned entities", ErrInvalid, b.EntityType)
	case r.State == RolloutAborted && (r.Digest == was.Digest || was.State == ""):
		return nil
	case begins && r.Part == Part{}:
		return fmt.Errorf("%w: the rollout of %s has no entities", ErrInvalid, b.EntityType)
	case begins && r.First == r.Part:
		return nil
	case begins || r.Digest != was.Digest || r.First != was.First || r.Prefix != was.Prefix || !slices.Equal(r.Types, was.Types):
		return fmt.Errorf("%w: another rollout of %s is in progress", ErrConflict, b.EntityType)
	case r.Share < was.Share:
		return fmt.Errorf("%w: entities of %s would return to the old module: a share of %d after one of %d", ErrConflict, b.EntityType, r.Share, was.Share)
	}
	return nil
}

// put stores the rollout under the next revision.
func (p *PutRollout) put(t *transition, b Activation, why ActivationChange) Result {
	was, to := b.Rollout, b.Bound
	why.Digest = b.Digest
	switch {
	case p.Rollout != nil:
		next := *p.Rollout
		if next.Began = 0; was.IsActive() {
			next.Began = was.Began
		}
		if !next.IsServing() { // the proof is evaluated when the module is bound
			next.Began = cmp.Or(next.Began, t.view.counters.Revision+1)
			next.Snapshots, next.Truncated, next.Proved = nil, nil, true
		} else if next.Began == 0 {
			next.Began = t.view.counters.Revision + 1
			next.Snapshots = t.view.snapshotsFor(b, next.Digest)
			next.Truncated, next.Proved = union(t.view.truncatedFor(b, next.Digest), p.Truncated), t.view.ClusterVersion() >= sharding.VersionSnapshotProofs
		} else if was.Digest == next.Digest { // also accept the modules that were proved since then
			next.Snapshots, next.Truncated, next.Proved = was.Snapshots, union(was.Truncated, t.view.truncatedFor(b, next.Digest)), was.Proved
		}
		b.Rollout = &next
		if next.State == RolloutAborted {
			to = t.afterAbort(b, next.Digest)
		}
		if why.Kind == ChangeCanary {
			why.Digest, why.Share, why.Prefix = next.Digest, next.Share, next.Prefix
		}
	case p.Promote && was.IsVerifying():
		b, to = t.view.activate(b, why.At, p.ForcedBy)
		why.Digest = was.Digest
	case p.Promote:
		first := was.First
		b.Rollout, why.Digest = nil, was.Digest
		b.History = append(slices.Clone(b.History), b.Bound)
		b.History = b.History[max(0, len(b.History)-MaxActivationHistory):]
		to = Bound{Digest: was.Digest, TypeIndex: was.TypeIndex, At: why.At, ForcedBy: cmp.Or(p.ForcedBy, was.ForcedBy), Snapshots: was.Snapshots, Truncated: was.Truncated, Proved: was.Proved, First: &first}
		if proved := t.view.truncatedFor(b, was.Digest); to.Proved {
			to.Truncated = union(to.Truncated, proved)
		}
	case !was.IsServing():
		b.Rollout = nil
	default:
		to = t.afterAbort(b, was.Digest)
		if p.ForcedBy != "" {
			to = to.without(was.Digest) // entities that stayed were not proved
		}
		b.Rollout = nil
	}
	return t.rebind(b, to, why)
}
