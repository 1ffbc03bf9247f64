package meta

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hostd/hostd/sharding"
)

// Bounds of a rollout.
const (
	// MaxRolloutStay is how many entities stay with the newer module when the
	// others go back.
	MaxRolloutStay = 100
	// MaxRolloutSteps is how many steps there are to come at most.
	MaxRolloutSteps = 32
	// MaxRolloutNote bounds what a rollout says for people, in bytes.
	MaxRolloutNote = 1024

	maxPrefixBytes = 255
	maxRulesBytes  = 256
)

// RolloutState says what becomes of a rollout.
type RolloutState string

// The states of a rollout:
//
//	running <--> paused --its share reaches all--> (bound)
//	   |            |
//	   +- aborting -+ --held--> aborted, or over
//
// From aborting and from held it may go on: where the older module cannot be
// looked at, nothing is changed. One begins running or paused; that of an
// imported cluster begins paused or aborted.
//
// An activation that needs a proof has a part without entities, see verifying.go:
//
//	verifying --proved or forced--> (bound)
//	   |    |
//	   |    +--the module does not fit--> refused
//	   +--aborted--> (over)
const (
	// RolloutRunning: its steps are taken when they are due.
	RolloutRunning RolloutState = "running"
	// RolloutPaused: it stays as it is until somebody says otherwise.
	RolloutPaused RolloutState = "paused"
	// RolloutAborting: its entities are to go back.
	RolloutAborting RolloutState = "aborting"
	// RolloutHeld: so they are, and write nothing meanwhile.
	RolloutHeld RolloutState = "held"
	// RolloutAborted: only those are left that the older module fails on.
	RolloutAborted RolloutState = "aborted"
	// RolloutVerifying: its module serves no entity until it is proved to read the
	// snapshots of all truncated histories; then it serves all. From
	// sharding.VersionVerifyingRollouts on.
	RolloutVerifying RolloutState = "verifying"
	// RolloutRefused: it is over because the module did not fit, and is kept for
	// its note until another module is activated.
	RolloutRefused RolloutState = "refused"
)

// rolloutNext is what may follow on a state.
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

// Part is a part of the entities of a type: those of the first Share buckets,
// see sharding.EntityID.Bucket, and those whose ids begin with Prefix.
type Part struct {
	Share  uint32 `json:"share,omitempty"` // of sharding.Buckets
	Prefix string `json:"prefix,omitempty"`
}

// Has reports whether an entity belongs to the part.
func (p Part) Has(id sharding.EntityID) bool {
	return p.Prefix != "" && strings.HasPrefix(id.ID, p.Prefix) || p.Share > 0 && id.Bucket() < p.Share
}

// Rollout is a module that serves a part of the entities of a type, in the
// place of the one that is bound, until it is bound itself or they go back. It
// is not modified.
type Rollout struct {
	Digest    Digest       `json:"digest"`
	TypeIndex int          `json:"typeIndex"` // place of the type in the module's manifest
	State     RolloutState `json:"state"`
	Part
	// First is the part that it began with, under the revision Began.
	First Part   `json:"first,omitzero"`
	Began uint64 `json:"began,omitempty"` // put by the machine
	// Types are all that go together, by name.
	Types []string `json:"types"`
	// Stay are entities that it serves although they are not of the part: those
	// that the older module fails on, by id, at most MaxRolloutStay.
	Stay []string `json:"stay,omitempty"`
	// Steps are the shares to come, rising, each Pause nanoseconds after the one
	// before; the next of them is due at DueAt, in unix nanoseconds.
	Steps []uint32 `json:"steps,omitempty"`
	Pause int64    `json:"pause,omitempty"`
	DueAt int64    `json:"dueAt,omitempty"`
	// Rules abort it, as whoever runs it reads them.
	Rules string `json:"rules,omitempty"`
	// Snapshots are those of Bound, once it is bound.
	Snapshots []Digest `json:"snapshots,omitempty"`
	Truncated []Digest `json:"truncated,omitempty"`
	Proved    bool     `json:"proved,omitempty"`
	// Accept: other states than before are meant, in each step. From
	// sharding.VersionSnapshotProofs on.
	Accept bool `json:"accept,omitempty"`
	// Of one that is verified: Force activates the module although it does not
	// fit, without a proof, and Limits are the type's from then on; nil leaves
	// them. From sharding.VersionVerifyingRollouts on.
	Force  bool    `json:"force,omitempty"`
	Limits *Limits `json:"limits,omitempty"`
	// ForcedBy is who began it although its module does not fit what is stored,
	// and BackForcedBy who has all of it go back although the older one fails on
	// entities.
	ForcedBy     string `json:"forcedBy,omitempty"`
	BackForcedBy string `json:"backForcedBy,omitempty"`
	By           string `json:"by,omitempty"`   // who asked for its state
	Note         string `json:"note,omitempty"` // for people
}

// Serves reports whether the rollout's module serves an entity of the type.
func (r *Rollout) Serves(id sharding.EntityID) bool {
	return r.Has(id) || slices.Contains(r.Stay, id.ID)
}

// Active reports that there is a rollout that is not over but for those that
// stay.
func (r *Rollout) Active() bool {
	return r != nil && r.State != RolloutAborted && r.State != RolloutRefused
}

// PutRollout is the next state of one type's rollout.
type PutRollout struct {
	EntityType string     `json:"entityType"`
	Over       uint64     `json:"over"`            // the binding's revision
	Owner      *Ownership `json:"owner,omitempty"` // as Owned has it
	// Rollout is nil where it is over: its module is bound if Promote says so, or
	// serves nothing any more.
	Rollout *Rollout `json:"rollout,omitempty"`
	Promote bool     `json:"promote,omitempty"`
	// ForcedBy is who has it end although the older module fails on entities.
	ForcedBy string `json:"forcedBy,omitempty"`
	// Truncated is what was proved in the cluster that the rollout began in, see
	// BindRestored; from sharding.VersionSnapshotProofs on.
	Truncated []Digest `json:"truncated,omitempty"`
}

// rolloutSet is what a command about rollouts says.
type rolloutSet struct {
	Kind ChangeKind   `json:"kind,omitempty"`
	Put  []PutRollout `json:"put"`
}

// PutRollouts makes the command that puts rollouts of types that go together,
// all or none, from sharding.VersionRollouts on. kind is what the logs of the
// bindings say of it, empty for nothing. It is ErrConflict where one of them is
// served under another revision by now, or where an entity would go back to the
// older module without that having been looked at. at is in unix nanoseconds.
func PutRollouts(kind ChangeKind, at int64, put ...PutRollout) []byte {
	return encode(command{Op: opPutRollouts, At: at, bindingCommand: bindingCommand{Rollouts: &rolloutSet{Kind: kind, Put: put}}})
}

// putRollouts carries such a command out.
func putRollouts(t *transition, c command) (Result, error) {
	if level := t.view.ClusterVersion(); level < sharding.VersionRollouts {
		return Result{}, fmt.Errorf("%w: a module that serves a part of a type is of level %d, the cluster is at level %d: hostd cluster raise-level", ErrClusterVersion, sharding.VersionRollouts, level)
	}
	set := *c.Rollouts
	if err := t.checkBy(c.By); err != nil {
		return Result{}, err
	}
	if len(set.Put) == 0 || len(set.Put) > MaxTypesPerModule {
		return Result{}, fmt.Errorf("%w: rollouts of %d types, 1 to %d are allowed", ErrInvalid, len(set.Put), MaxTypesPerModule)
	}
	switch set.Kind {
	case "", ChangeActivate, ChangeCanary, ChangePromote, ChangeAbort:
	default:
		return Result{}, fmt.Errorf("%w: a rollout is no change of kind %.40q", ErrInvalid, string(set.Kind))
	}
	var last Result
	for i, p := range set.Put {
		if slices.ContainsFunc(set.Put[:i], func(o PutRollout) bool { return o.EntityType == p.EntityType }) {
			return Result{}, fmt.Errorf("%w: two rollouts of %.64q", ErrInvalid, p.EntityType)
		}
		b, err := p.follows(t)
		if err == nil && (set.Kind == ChangeActivate) != (p.Promote && b.Rollout.Verifying()) {
			err = fmt.Errorf("%w: only a module that was verified is activated by a rollout", ErrConflict)
		}
		if err != nil {
			return Result{}, err
		}
		last = p.put(t, b, BindingChange{Kind: set.Kind, At: c.At, By: c.By, Forced: p.ForcedBy != "" || p.Rollout != nil && p.Rollout.ForcedBy != ""})
	}
	return last, nil
}

// follows is the binding that p may be put over.
func (p *PutRollout) follows(t *transition) (Binding, error) {
	b, bound := t.view.bindings[p.EntityType]
	if err := t.own(&b, p.Owner); bound && err != nil {
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
		return b, fmt.Errorf("%w: snapshots of %d modules, at most %d are allowed", ErrInvalid, len(p.Truncated), MaxTruncatedModules)
	case level < sharding.VersionSnapshotProofs && (len(p.Truncated) > 0 || p.Rollout != nil && p.Rollout.Accept):
		return b, fmt.Errorf("%w: a rollout of level %d names no snapshots", ErrClusterVersion, level)
	case b.Revision != p.Over:
		return b, fmt.Errorf("%w: %s is served under revision %d, not %d", ErrConflict, p.EntityType, b.Revision, p.Over)
	case p.Rollout == nil && b.Rollout == nil:
		return b, fmt.Errorf("%w: no module is on its way to serve %s", ErrConflict, p.EntityType)
	case p.Rollout == nil && p.Promote && (was.State == RolloutHeld || was.State == RolloutAborting):
		return b, fmt.Errorf("%w: entities of %s are on their way back", ErrConflict, p.EntityType)
	case p.Rollout == nil && p.Promote && was.State == RolloutRefused:
		return b, fmt.Errorf("%w: the module was refused for %s", ErrConflict, p.EntityType)
	case p.Rollout == nil && p.Promote && was.Verifying() && (p.ForcedBy == "" || !was.Force) && !t.view.proved(b):
		return b, fmt.Errorf("%w: %s is not proved to read all that is stored of %s", ErrConflict, was.Digest, p.EntityType)
	case p.Rollout == nil && !p.Promote && !b.Rollout.Serving():
		// It ends, and served nothing.
	case p.Rollout == nil && !p.Promote && was.State != RolloutHeld:
		return b, fmt.Errorf("%w: entities of %s would go back while they are written", ErrConflict, p.EntityType)
	case p.Rollout == nil && !p.Promote && len(was.Stay) > 0 && p.ForcedBy == "":
		return b, fmt.Errorf("%w: the older module fails on entities of %s", ErrConflict, p.EntityType)
	}
	if err := checkText("forcedBy", p.ForcedBy, MaxForcedByBytes); err != nil || p.Rollout == nil {
		return b, err
	}
	if err := p.Rollout.check(t.view, b); err != nil {
		return b, err
	}
	return b, p.Rollout.after(was, b, p.ForcedBy != "")
}

// check bounds a rollout, and refuses one of a module that cannot serve the
// type.
func (r *Rollout) check(v *View, b Binding) error {
	m, known := v.modules[r.Digest]
	switch {
	case !known:
		return fmt.Errorf("%w: %s", ErrUnknownModule, r.Digest)
	case r.TypeIndex < 0 || r.TypeIndex >= len(m.EntityTypes) || m.EntityTypes[r.TypeIndex] != b.EntityType:
		return fmt.Errorf("%w: the module does not serve %.64q", ErrUnknownType, b.EntityType)
	case m.ShardKeys[b.EntityType] != b.ShardKey:
		return fmt.Errorf("%w: the entities of type %s are placed by %s, the module says %s", ErrShardKey, b.EntityType, b.ShardKey, m.ShardKeys[b.EntityType])
	case r.Digest == b.Digest:
		return fmt.Errorf("%w: the module serves all of %s already", ErrConflict, b.EntityType)
	case r.Share >= sharding.Buckets || r.First.Share >= sharding.Buckets:
		return fmt.Errorf("%w: a share of %d of %d", ErrInvalid, r.Share, sharding.Buckets)
	case len(r.Stay) > MaxRolloutStay || len(r.Steps) > MaxRolloutSteps || r.Pause < 0 || r.DueAt < 0 || len(r.Snapshots) > MaxSnapshotModules || len(r.Truncated) > MaxTruncatedModules:
		return fmt.Errorf("%w: a rollout of %d steps, in which %d entities stay", ErrInvalid, len(r.Steps), len(r.Stay))
	case !slices.Contains(r.Types, b.EntityType) || len(r.Types) > MaxTypesPerModule:
		return fmt.Errorf("%w: a rollout of %d types, without %.64q", ErrInvalid, len(r.Types), b.EntityType)
	}
	if err := r.checkVerifying(v, b); err != nil {
		return err
	}
	before := r.Share
	for _, step := range r.Steps {
		if step <= before || step > sharding.Buckets {
			return fmt.Errorf("%w: a step to %d of %d after %d", ErrInvalid, step, sharding.Buckets, before)
		}
		before = step
	}
	for i, id := range r.Stay {
		if err := (sharding.EntityID{Type: b.EntityType, ID: id}).Validate(); err != nil || slices.Contains(r.Stay[:i], id) {
			return fmt.Errorf("%w: an entity that stays, %.64q", ErrInvalid, id)
		}
	}
	return cmp.Or(checkText("prefix", r.Prefix, maxPrefixBytes), checkText("prefix", r.First.Prefix, maxPrefixBytes), checkText("rules", r.Rules, maxRulesBytes),
		checkText("note", r.Note, MaxRolloutNote), checkText("forcedBy", r.ForcedBy, MaxForcedByBytes), checkText("backForcedBy", r.BackForcedBy, MaxForcedByBytes), checkText("by", r.By, MaxForcedByBytes))
}

// after refuses a rollout that would take entities from the newer module, but
// where that is what the rollout has come to.
func (r *Rollout) after(was Rollout, b Binding, forced bool) error {
	if !slices.Contains(rolloutNext[was.State], r.State) {
		return fmt.Errorf("%w: the rollout of %s is %s, and not to be %.40q", ErrConflict, b.EntityType, cmp.Or(string(was.State), "over"), string(r.State))
	}
	stay := func(id string) bool { return slices.Contains(r.Stay, id) }
	begins := was.State == "" || was.State == RolloutRefused || was.State == RolloutAborted && r.State != RolloutHeld
	switch {
	case r.State == RolloutVerifying:
		return nil // it begins
	case r.State == RolloutRefused && r.Digest == was.Digest:
		return nil
	case !forced && slices.ContainsFunc(was.Stay, func(id string) bool { return !stay(id) }):
		return fmt.Errorf("%w: entities of %s that stay with a newer module are left out", ErrConflict, b.EntityType)
	case r.State == RolloutAborted && (r.Part != Part{} || len(r.Stay) == 0):
		return fmt.Errorf("%w: what is left of the rollout of %s is entities that stay", ErrInvalid, b.EntityType)
	case r.State == RolloutAborted && (r.Digest == was.Digest || was.State == ""):
		return nil
	case begins && r.Part == Part{}:
		return fmt.Errorf("%w: a rollout of %s to no entity", ErrInvalid, b.EntityType)
	case begins && r.First == r.Part:
		return nil
	case begins || r.Digest != was.Digest || r.First != was.First || r.Prefix != was.Prefix || !slices.Equal(r.Types, was.Types):
		return fmt.Errorf("%w: another rollout of %s is under way", ErrConflict, b.EntityType)
	case r.Share < was.Share:
		return fmt.Errorf("%w: entities of %s would go back: a share of %d after one of %d", ErrConflict, b.EntityType, r.Share, was.Share)
	}
	return nil
}

// put stores it under the next revision.
func (p *PutRollout) put(t *transition, b Binding, why BindingChange) Result {
	was, to := b.Rollout, b.Bound
	why.Digest = b.Digest
	switch {
	case p.Rollout != nil:
		next := *p.Rollout
		if next.Began = 0; was.Active() {
			next.Began = was.Began
		}
		if !next.Serving() { // what is proved when it is bound counts
			next.Began = cmp.Or(next.Began, t.view.counters.Revision+1)
			next.Snapshots, next.Truncated, next.Proved = nil, nil, true
		} else if next.Began == 0 {
			next.Began = t.view.counters.Revision + 1
			next.Snapshots = t.view.snapshotsFor(b, next.Digest)
			next.Truncated, next.Proved = union(t.view.truncatedFor(b, next.Digest), p.Truncated), t.view.ClusterVersion() >= sharding.VersionSnapshotProofs
		} else if was.Digest == next.Digest { // what was proved since counts
			next.Snapshots, next.Truncated, next.Proved = was.Snapshots, union(was.Truncated, t.view.truncatedFor(b, next.Digest)), was.Proved
		}
		b.Rollout = &next
		if next.State == RolloutAborted {
			to = t.takenBack(b, next.Digest)
		}
		if why.Kind == ChangeCanary {
			why.Digest, why.Share, why.Prefix = next.Digest, next.Share, next.Prefix
		}
	case p.Promote && was.Verifying():
		b, to = t.view.activated(b, why.At, p.ForcedBy)
		why.Digest = was.Digest
	case p.Promote:
		first := was.First
		b.Rollout, why.Digest = nil, was.Digest
		b.History = append(slices.Clone(b.History), b.Bound)
		b.History = b.History[max(0, len(b.History)-MaxBindingHistory):]
		to = Bound{Digest: was.Digest, TypeIndex: was.TypeIndex, At: why.At, ForcedBy: cmp.Or(p.ForcedBy, was.ForcedBy), Snapshots: was.Snapshots, Truncated: was.Truncated, Proved: was.Proved, First: &first}
		if proved := t.view.truncatedFor(b, was.Digest); to.Proved {
			to.Truncated = union(to.Truncated, proved)
		}
	case !was.Serving():
		b.Rollout = nil
	default:
		to = t.takenBack(b, was.Digest)
		if p.ForcedBy != "" {
			to = to.without(was.Digest) // those that stayed were not proved
		}
		b.Rollout = nil
	}
	return t.rebind(b, to, why)
}
