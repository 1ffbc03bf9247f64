// Package rollout has a module serve a part of the entities of a type, on its
// way to serve all of them. It starts no goroutine.
package rollout

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/canary"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/status"
	"github.com/hostd/hostd/host/shadow"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// Plan is which part a module serves, and the larger ones that follow.
type Plan struct {
	meta.Part
	Steps []uint32      // shares of sharding.Buckets, rising
	Pause time.Duration // before each of them; 0 without any
	Rules string        // see canary.Parse
}

// Begin is a module that is to serve a part of a type.
type Begin struct {
	EntityType string
	Digest     journal.Digest
	Plan
	By string // who has it done, KIND:NAME
	// Check looks at how the module fits a type, once all that go together are
	// known; it refuses, or says who forces it. Nil: nothing is looked at.
	Check func(ctx context.Context, entityType string) (forcedBy string, err error)
	Allow Allow
	Truncated
}

// Truncated is that of an activation.
type Truncated struct {
	Prove, Accept, Force bool
	Remark               func(string)
}

// Allow says whether the module, which has these types, may serve this one, and
// to whom the type belongs from then on. Nil allows it to everybody, and leaves
// the owner.
type Allow func(ctx context.Context, entityType, owner string, types []string) (string, error)

// Order is what is to become of a rollout.
type Order struct {
	EntityType string
	Action     modulev1.ChangeRolloutRequest_Action
	Force      bool
	By         string
	Allow      Allow
}

// State is that of a rollout.
type State struct {
	EntityType string
	Older      journal.Digest // what serves the other entities
	Revision   uint64         // of the binding
	// Rollout is nil where one module serves all.
	*meta.Rollout
	Counts *Counts // nil where they are not known
	// Aborted is how the last rollout ended, where that was what happened last.
	Aborted *meta.BindingChange
	Shadow  *Shadow // nil where no other module decides too
}

// Shadow is a module that decides a share of a type's commands too, and how
// that compares with what came of them. Silent nodes did not say what they
// compared.
type Shadow struct {
	shadow.Wish
	shadow.Sum
	Silent int
}

// Counts are what the two modules of a rollout did since it began. Silent nodes
// did not say what they counted.
type Counts struct {
	Older, Newer canary.Counts
	Silent       int
}

// Rollouts are those of the cluster. All wait until what was decided before is
// known here.
type Rollouts interface {
	// Begin returns once every node that is up serves the part. A module that does
	// not fit is a *status.RefusedError.
	Begin(ctx context.Context, b Begin) (revision uint64, err error)
	// State is that of a type's rollout. It fails with request.ErrUnknownType.
	State(ctx context.Context, entityType string) (State, error)
	// Change returns what came of the order, when that is over.
	Change(ctx context.Context, o Order) (State, error)
}

// Service answers the calls about rollouts; without Rollouts they are
// unimplemented.
type Service struct {
	Rollouts Rollouts
	Allow    Allow
}

// Get tells of a type's rollout.
func (s Service) Get(ctx context.Context, r *modulev1.GetRolloutRequest) (*modulev1.GetRolloutResponse, error) {
	if s.Rollouts == nil {
		return nil, request.ErrUnsupported
	}
	now, err := s.Rollouts.State(ctx, r.GetEntityType())
	if err != nil {
		return nil, err
	}
	aborted := ""
	if a := now.Aborted; a != nil {
		aborted = fmt.Sprintf("its last rollout was aborted by %s at %s", cmp.Or(a.By, "somebody"), time.Unix(0, a.At).UTC().Format(time.DateTime))
	}
	switch {
	case now.Rollout == nil && now.Shadow == nil && aborted == "":
		return nil, errNone
	case now.Rollout == nil:
		return &modulev1.GetRolloutResponse{Shadow: now.Shadow.message(), Aborted: aborted}, nil
	}
	out := &modulev1.GetRolloutResponse{Rollout: now.message()}
	out.Shadow = now.Shadow.message()
	return out, nil
}

// errNone: one module serves the type.
var errNone = status.New(connect.CodeNotFound, "one module serves all of the type; 'hostd module activate TYPE DIGEST --percent 5' has another serve a part")

// Change has something become of a type's rollout.
func (s Service) Change(ctx context.Context, r *modulev1.ChangeRolloutRequest) (*modulev1.ChangeRolloutResponse, error) {
	if s.Rollouts == nil {
		return nil, request.ErrUnsupported
	}
	if r.GetAction() == modulev1.ChangeRolloutRequest_ACTION_UNSPECIFIED {
		return nil, status.Argument("the action is missing")
	}
	now, err := s.Rollouts.Change(ctx, Order{EntityType: r.GetEntityType(), Action: r.GetAction(), Force: r.GetForce(), By: authorize.Caller(ctx), Allow: s.Allow})
	if err != nil {
		return nil, err
	}
	out := &modulev1.ChangeRolloutResponse{Revision: now.Revision}
	if now.Rollout != nil {
		out.Rollout = now.message()
	}
	return out, nil
}

func stateOf(s meta.RolloutState) modulev1.Rollout_State {
	return modulev1.Rollout_State(modulev1.Rollout_State_value["STATE_"+strings.ToUpper(string(s))])
}

func (s State) message() *modulev1.Rollout {
	out := &modulev1.Rollout{
		EntityType: s.EntityType, Digest: s.Digest.String(), OlderDigest: s.Older.String(), Revision: s.Revision,
		State: stateOf(s.Rollout.State),
		Share: s.Share, Prefix: s.Prefix, Stay: s.Stay, EntityTypes: s.Types, By: s.By, Note: s.Note, Steps: s.Steps, Rules: s.Rules,
	}
	if c := s.Counts; c != nil {
		out.Newer, out.Older, out.SilentNodes = counts(&c.Newer), counts(&c.Older), uint32(c.Silent)
	}
	if s.Pause > 0 {
		out.Pause = durationpb.New(time.Duration(s.Pause))
	}
	if s.DueAt > 0 {
		out.DueAt = timestamppb.New(time.Unix(0, s.DueAt))
	}
	return out
}

// message is nil where there is none.
func (s *Shadow) message() *modulev1.Shadow {
	if s == nil {
		return nil
	}
	out := &modulev1.Shadow{
		Digest: s.Digest.String(), Share: s.Share, Compared: s.Compared, Differ: s.Differ, Dropped: s.Dropped, PassedOver: s.Passed,
		Fuel: s.Fuel, OtherFuel: s.Other, SilentNodes: uint32(s.Silent), Note: s.Note,
	}
	for i, n := range s.By {
		if n > 0 {
			out.Differences = append(out.Differences, &modulev1.ShadowDifference{In: shadow.Kind(i).Names()[0], Commands: n})
		}
	}
	for _, e := range s.Examples {
		out.Examples = append(out.Examples, &modulev1.ShadowExample{EntityId: e.Entity.ID, Sequence: uint64(e.Sequence), Command: e.Command, In: e.In.Names(), Fault: e.Fault})
	}
	return out
}

func counts(c *canary.Counts) *modulev1.VersionCounts {
	return &modulev1.VersionCounts{Commands: c.Commands, Rejections: c.Rejections, Faults: c.Faults, P99: durationpb.New(c.P99())}
}

// minPause and maxPause bound the pause between two steps.
const (
	minPause = time.Second
	maxPause = 30 * 24 * time.Hour
)

// PlanOf is the plan that a request has.
func PlanOf(p *modulev1.RolloutPlan) (Plan, error) {
	out := Plan{Part: meta.Part{Share: p.GetShare(), Prefix: p.GetPrefix()}, Steps: p.GetSteps(), Pause: p.GetPause().AsDuration(), Rules: p.GetRules()}
	if _, err := canary.Parse(out.Rules); err != nil {
		return out, status.Argument(err.Error())
	}
	if out.Part == (meta.Part{}) {
		return out, status.Argument("the module is to serve no entity: a share or a prefix is missing")
	}
	for i, share := range out.Steps {
		if before := append([]uint32{out.Share}, out.Steps...)[i]; share <= before {
			return out, status.Argument("the steps do not rise")
		}
	}
	switch {
	case len(out.Steps) == 0 && p.GetPause() != nil:
		return out, status.Argument("a pause is between steps, and there are none")
	case len(out.Steps) > 0 && (!p.GetPause().IsValid() || out.Pause < minPause || out.Pause > maxPause):
		return out, status.Argument(fmt.Sprintf("the pause between two steps is from %v to %v", minPause, maxPause))
	}
	return out, nil
}

// Refused says why a rollout cannot be as things are.
func Refused(format string, args ...any) error {
	return &status.RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// ErrGoesOn: the call's time was over before the entities had gone back.
var ErrGoesOn = status.New(connect.CodeDeadlineExceeded, "the entities are on their way back to the older module, and that goes on; 'hostd module rollout TYPE' shows it")
